export const ROLES = [
  ["member", "Member"],
  ["admin", "Administrator"],
] as const;

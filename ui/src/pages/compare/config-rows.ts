import type { Difference } from "@/api/task-types";
import type { Job } from "@/api/types";

const isGroup = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);

function leaves(group: Record<string, unknown>, path: string[] = []): [string, unknown][] {
  return Object.entries(group).flatMap(([name, value]): [string, unknown][] => (isGroup(value) ? leaves(value, [...path, name]) : [[[...path, name].join("."), value]]));
}

/** Every field of the configs, in the order in which the first of them has it. */
export function allFields(jobs: readonly Pick<Job, "config">[]): Difference[] {
  const fieldMaps = jobs.map(({ config }) => new Map(leaves(config)));
  const paths = [...new Set(fieldMaps.flatMap((fields) => [...fields.keys()]))];
  return paths.map((path) => ({ path, values: fieldMaps.map((fields) => fields.get(path) ?? null) }));
}

export function valueText(value: unknown): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.length === 0 ? "none" : value.map(valueText).join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export const pathText = (path: string) => path.replaceAll(".", " › ").replaceAll("_", " ");

import type { User } from "@/api/types";

/** A person for tests. */
export const ada: User = {
  id: "1",
  name: "Ada",
  email: "ada@example.com",
  email_verified: null,
  image: null,
  role: "member",
  created_at: "2026-11-15T00:00:00Z",
  updated_at: "2026-11-15T00:00:00Z",
};

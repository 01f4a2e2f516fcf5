import { createContext, use } from "react";
import type { User } from "@/api/types";

export const CurrentUser = createContext<User | null>(null);

/** Whose work this is. Only for pages of the app, which are never shown to somebody who is not signed in. */
export function useCurrentUser(): User {
  const user = use(CurrentUser);
  if (user === null) throw new Error("This page needs a signed-in person around it.");
  return user;
}

/** Accounts: a person's own profile, password, sessions and API tokens; for administrators also people, invitations and the audit log. */
import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { authStateQuery } from "./auth";
import { answerOf, api, queryClient } from "./client";
import type { components } from "./schema";
import type { Role, User } from "./types";

type Schemas = components["schemas"];

export async function renameMe(name: string): Promise<User> {
  const user = await answerOf(api.PATCH("/api/me", { body: { name } }));
  queryClient.setQueryData(authStateQuery.queryKey, (state) => (state ? { ...state, user } : state));
  return user;
}

export async function changePassword(body: Schemas["ChangePassword"]) {
  await answerOf(api.POST("/api/me/password", { body }));
  void queryClient.invalidateQueries({ queryKey: sessionsQuery.queryKey });
}

export const sessionsQuery = queryOptions({
  queryKey: ["me", "sessions"],
  queryFn: () => answerOf(api.GET("/api/me/sessions")),
});

export const storageQuery = queryOptions({
  queryKey: ["me", "storage"],
  queryFn: () => answerOf(api.GET("/api/me/storage")),
});

export async function endSession(id: string) {
  await answerOf(api.DELETE("/api/me/sessions/{session_id}", { params: { path: { session_id: id } } }));
  await queryClient.invalidateQueries({ queryKey: sessionsQuery.queryKey });
}

export async function endOtherSessions() {
  await answerOf(api.DELETE("/api/me/sessions"));
  await queryClient.invalidateQueries({ queryKey: sessionsQuery.queryKey });
}

export const tokensQuery = queryOptions({
  queryKey: ["me", "tokens"],
  queryFn: () => answerOf(api.GET("/api/me/tokens")),
});

export async function createToken(body: Schemas["NewApiToken"]) {
  const created = await answerOf(api.POST("/api/me/tokens", { body }));
  void queryClient.invalidateQueries({ queryKey: tokensQuery.queryKey });
  return created;
}

export async function deleteToken(id: string) {
  await answerOf(api.DELETE("/api/me/tokens/{token_id}", { params: { path: { token_id: id } } }));
  await queryClient.invalidateQueries({ queryKey: tokensQuery.queryKey });
}

export const serverQuery = queryOptions({
  queryKey: ["server"],
  queryFn: () => answerOf(api.GET("/api/server")),
  staleTime: 5 * 60_000,
});

export const peopleQuery = queryOptions({
  queryKey: ["people"],
  queryFn: () => answerOf(api.GET("/api/users")),
});

export async function changePerson(id: string, change: { role?: Role; disabled?: boolean }) {
  await answerOf(api.PATCH("/api/users/{user_id}", { params: { path: { user_id: id } }, body: change }));
  await queryClient.invalidateQueries({ queryKey: peopleQuery.queryKey });
}

export const invite = (body: { email: string; role: Role }) => answerOf(api.POST("/api/invitations", { body }));

const AUDIT_PAGE = 50;

export const auditQuery = infiniteQueryOptions({
  queryKey: ["audit"],
  queryFn: ({ pageParam }) => answerOf(api.GET("/api/audit-events", { params: { query: { limit: AUDIT_PAGE, offset: pageParam } } })),
  initialPageParam: 0,
  getNextPageParam: ({ total }, pages) => (pages.length * AUDIT_PAGE < total ? pages.length * AUDIT_PAGE : undefined),
});

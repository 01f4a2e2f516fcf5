/** Accounts: a person's own profile, password, sessions and API tokens; for administrators also people, invitations and the audit log. */
import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { authStateQuery } from "./auth";
import { answerOf, api, queryClient } from "./client";
import type { components } from "./schema";
import type { OAuthProvider, Role, User } from "./types";

type Schemas = components["schemas"];

async function keepMe(answer: Promise<User>): Promise<User> {
  const user = await answer;
  // An answer that is on its way still has what was before.
  await queryClient.cancelQueries({ queryKey: authStateQuery.queryKey });
  queryClient.setQueryData(authStateQuery.queryKey, (state) => (state ? { ...state, user } : state));
  void queryClient.invalidateQueries({ queryKey: peopleQuery.queryKey });
  return user;
}

export const renameMe = (name: string) => keepMe(answerOf(api.PATCH("/api/me", { body: { name } })));

export async function changePicture(file: File): Promise<User> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  // In pieces: a call takes only so many arguments.
  let text = "";
  for (let start = 0; start < bytes.length; start += 32_768) text += String.fromCharCode(...bytes.subarray(start, start + 32_768));
  return keepMe(answerOf(api.PUT("/api/me/picture", { body: { content: btoa(text) } })));
}

export const removePicture = () => keepMe(answerOf(api.DELETE("/api/me/picture")));

export async function changePassword(body: Schemas["ChangePassword"]) {
  await answerOf(api.POST("/api/me/password", { body }));
  void queryClient.invalidateQueries({ queryKey: sessionsQuery.queryKey });
  void queryClient.invalidateQueries({ queryKey: tokensQuery.queryKey });
}

export const linkedAccountsQuery = queryOptions({
  queryKey: ["me", "linked-accounts"],
  queryFn: () => answerOf(api.GET("/api/me/linked-accounts")),
});

export const startLink = (provider: OAuthProvider) => answerOf(api.POST("/api/me/linked-accounts", { body: { provider } }));

export async function unlinkAccount(id: string) {
  await answerOf(api.DELETE("/api/me/linked-accounts/{link_id}", { params: { path: { link_id: id } } }));
  await queryClient.invalidateQueries({ queryKey: linkedAccountsQuery.queryKey });
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

/** What the operator should change; for admins only. */
export const serverWarningsQuery = queryOptions({
  queryKey: ["server", "warnings"],
  queryFn: () => answerOf(api.GET("/api/server/warnings")),
  staleTime: 5 * 60_000,
});

export const peopleQuery = queryOptions({
  queryKey: ["people"],
  queryFn: () => answerOf(api.GET("/api/users")),
});

export async function changePerson(id: string, change: { role?: Role; disabled?: boolean }) {
  await answerOf(api.PATCH("/api/users/{user_id}", { params: { path: { user_id: id } }, body: change }));
  await queryClient.invalidateQueries({ queryKey: peopleQuery.queryKey });
  // Invitations end with the role of who sent them.
  void queryClient.invalidateQueries({ queryKey: invitationsQuery.queryKey });
}

export const invitationsQuery = queryOptions({
  queryKey: ["invitations"],
  queryFn: () => answerOf(api.GET("/api/invitations")),
});

export async function invite(body: { email: string; role: Role }) {
  const created = await answerOf(api.POST("/api/invitations", { body }));
  void queryClient.invalidateQueries({ queryKey: invitationsQuery.queryKey });
  return created;
}

export async function revokeInvitation(id: string) {
  await answerOf(api.DELETE("/api/invitations/{invitation_id}", { params: { path: { invitation_id: id } } }));
  await queryClient.invalidateQueries({ queryKey: invitationsQuery.queryKey });
}

const AUDIT_PAGE = 50;

/** Which entries to show; an empty text leaves a field open. Days are those of the reader. */
export type AuditFilter = { actor: string; action: string; project: string; from: string; to: string };

export const NO_FILTER: AuditFilter = { actor: "", action: "", project: "", from: "", to: "" };

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** The filter as the API takes it. Half a project id is not sent. */
export function auditParams({ actor, action, project, from, to }: AuditFilter) {
  const end = to && new Date(`${to}T00:00:00`);
  if (end) end.setDate(end.getDate() + 1);
  return {
    ...(actor && { actor_id: actor }),
    ...(action.trim() && { action: action.trim() }),
    ...(UUID.test(project.trim()) && { project_id: project.trim() }),
    ...(from && { since: new Date(`${from}T00:00:00`).toISOString() }),
    ...(end && { until: end.toISOString() }),
  };
}

export const auditQuery = (filter: AuditFilter) =>
  infiniteQueryOptions({
    queryKey: ["audit", filter],
    queryFn: ({ pageParam }) =>
      answerOf(api.GET("/api/audit-events", { params: { query: { ...auditParams(filter), limit: AUDIT_PAGE, offset: pageParam } } })),
    initialPageParam: 0,
    getNextPageParam: ({ total }, pages) => (pages.length * AUDIT_PAGE < total ? pages.length * AUDIT_PAGE : undefined),
  });

export const auditExportAddress = (filter: AuditFilter) => `/api/audit-events/export?${new URLSearchParams(auditParams(filter))}`;

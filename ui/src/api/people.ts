/** What administrators see and do: other people's accounts, invitations, the audit log. */
import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { answerOf, api } from "./client";
import { queryClient } from "./query-client";
import type { Role } from "./types";

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
  queryFn: ({ pageParam }) =>
    answerOf(api.GET("/api/audit-events", { params: { query: { limit: AUDIT_PAGE, before: pageParam } } })),
  initialPageParam: undefined as string | undefined,
  getNextPageParam: (page) => page.nextBefore ?? undefined,
});

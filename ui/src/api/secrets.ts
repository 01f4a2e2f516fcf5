/** Named secrets of a person or of a project. Values are sent once and never come back. */
import { queryOptions } from "@tanstack/react-query";
import { answerOf, api, queryClient } from "./client";
import type { components } from "./schema";

export type Secret = components["schemas"]["SecretOut"];

const ofProject = (projectId: string | null) => (projectId === null ? {} : { project_id: projectId });

export const secretsQuery = (projectId: string | null) =>
  queryOptions({
    queryKey: ["secrets", { projectId }],
    queryFn: ({ signal }) => answerOf(api.GET("/api/secrets", { params: { query: ofProject(projectId) }, signal })),
  });

export async function storeSecret(projectId: string | null, name: string, value: string) {
  await answerOf(api.PUT("/api/secrets/{name}", { params: { path: { name }, query: ofProject(projectId) }, body: { value } }));
  await queryClient.invalidateQueries({ queryKey: secretsQuery(projectId).queryKey });
}

export async function deleteSecret(projectId: string | null, name: string) {
  await answerOf(api.DELETE("/api/secrets/{name}", { params: { path: { name }, query: ofProject(projectId) } }));
  await queryClient.invalidateQueries({ queryKey: secretsQuery(projectId).queryKey });
}

import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { answerOf, api, queryClient } from "./client";
import type { Project, ProjectBody, QueryOf } from "./types";

export const projectsQuery = ({ search = "", limit, offset = 0 }: QueryOf<"/api/projects">) =>
  queryOptions({
    queryKey: ["projects", "list", { search, limit, offset }],
    queryFn: ({ signal }) => answerOf(api.GET("/api/projects", { params: { query: { search, limit, offset } }, signal })),
    // While somebody types, the last results stay in view instead of flashing to a skeleton.
    placeholderData: keepPreviousData,
  });

export const projectQuery = (id: string) =>
  queryOptions({
    queryKey: ["projects", "one", id],
    queryFn: ({ signal }) => answerOf(api.GET("/api/projects/{project_id}", { params: at(id), signal })),
  });

const at = (id: string) => ({ path: { project_id: id } });

const forgetLists = () => queryClient.invalidateQueries({ queryKey: ["projects", "list"] });

function keep(project: Project): Project {
  queryClient.setQueryData(projectQuery(project.id).queryKey, project);
  void forgetLists();
  return project;
}

export const createProject = async (body: ProjectBody) => keep(await answerOf(api.POST("/api/projects", { body })));

export const updateProject = async (id: string, body: ProjectBody) =>
  keep(await answerOf(api.PUT("/api/projects/{project_id}", { params: at(id), body })));

export async function deleteProject(id: string) {
  await answerOf(api.DELETE("/api/projects/{project_id}", { params: at(id) }));
  void forgetLists();
}

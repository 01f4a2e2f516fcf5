/** The projects that a list offers. */
import { useQuery } from "@tanstack/react-query";
import { projectQuery, projectsQuery } from "@/api/projects";

/** The newest projects as options, and with them the chosen one, which may be older: its id can come from an address. */
export function useProjectOptions(chosen = "") {
  const query = useQuery(projectsQuery({ limit: 100 }));
  const newest = query.data?.items ?? [];
  const isOlder = query.isSuccess && chosen !== "" && !newest.some(({ id }) => id === chosen);
  const older = useQuery({ ...projectQuery(chosen), enabled: isOlder });
  const listed = isOlder && older.data ? [...newest, older.data] : newest;
  return { query, options: listed.map(({ id, name }) => [id, name] as const) };
}

import { queryOptions } from "@tanstack/react-query";
import { answerOf, api } from "./client";

/** What can train here, and what to do for those that cannot. */
export const backendsQuery = queryOptions({
  queryKey: ["backends"],
  queryFn: ({ signal }) => answerOf(api.GET("/api/backends", { signal })),
  staleTime: 5 * 60_000,
});

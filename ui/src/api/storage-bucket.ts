/** The bucket of jobs on rented machines; for administrators. */
import { queryOptions } from "@tanstack/react-query";
import { answerOf, api, queryClient } from "./client";
import { providersQuery } from "./providers";
import type { components } from "./schema";

type Schemas = components["schemas"];

export type StorageBucket = Schemas["BucketOut"];
export type BucketTest = Schemas["BucketTest"];
type NewBucket = Schemas["BucketIn"];

export const storageBucketQuery = queryOptions({
  queryKey: ["storage-bucket"],
  queryFn: ({ signal }) => answerOf(api.GET("/api/storage-bucket", { signal })),
});

async function changed<T>(answer: Promise<T>): Promise<T> {
  const result = await answer;
  await Promise.all([
    queryClient.invalidateQueries({ queryKey: storageBucketQuery.queryKey }),
    // Which store a provider uses depends on it.
    queryClient.invalidateQueries({ queryKey: providersQuery.queryKey }),
  ]);
  return result;
}

/** Tests the bucket, and saves it when every step succeeded. */
export const setStorageBucket = (body: NewBucket) => changed(answerOf(api.PUT("/api/storage-bucket", { body })));
export const checkStorageBucket = () => answerOf(api.POST("/api/storage-bucket/check"));
export const removeStorageBucket = () => changed(answerOf(api.DELETE("/api/storage-bucket")));

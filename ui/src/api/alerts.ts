/** Channels for alerts about runs. An address is sent once and never comes back. */
import { queryOptions } from "@tanstack/react-query";
import { answerOf, api, queryClient } from "./client";
import type { components } from "./schema";

export type AlertChannel = components["schemas"]["ChannelOut"];
export type AlertRule = components["schemas"]["AlertRule"];
type NewAlertChannel = components["schemas"]["ChannelIn"];
type ChannelChange = components["schemas"]["ChannelChange"];

const ALL = ["alert-channels"];

export const alertChannelsQuery = (projectId: string | null) =>
  queryOptions({
    queryKey: [...ALL, { projectId }],
    queryFn: ({ signal }) => answerOf(api.GET("/api/alert-channels", { params: { query: projectId === null ? {} : { project_id: projectId } }, signal })),
  });

const refresh = () => queryClient.invalidateQueries({ queryKey: ALL });

export async function createAlertChannel(body: NewAlertChannel) {
  const made = await answerOf(api.POST("/api/alert-channels", { body }));
  await refresh();
  return made;
}

export async function changeAlertChannel(id: string, body: ChannelChange) {
  await answerOf(api.PATCH("/api/alert-channels/{channel_id}", { params: { path: { channel_id: id } }, body }));
  await refresh();
}

export async function deleteAlertChannel(id: string) {
  await answerOf(api.DELETE("/api/alert-channels/{channel_id}", { params: { path: { channel_id: id } } }));
  await refresh();
}

export const testAlertChannel = (id: string) => answerOf(api.POST("/api/alert-channels/{channel_id}/test", { params: { path: { channel_id: id } } }));

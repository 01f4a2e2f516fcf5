// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it } from "vitest";
import { queryClient } from "@/api/client";
import type { Job } from "@/api/types";
import { serveFrom } from "@/test-server";
import { testJob } from "@/test-job";
import { SettingsDialog } from "./job-dialogs";

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

afterEach(() => {
  cleanup();
  queryClient.clear();
});

const UNCHANGED = { learning_rate: null, weight_decay: null, clip_norm: null, eval_every_steps: null, save_every_steps: null };

const dialog = (settings: Job["settings"]) => (
  <QueryClientProvider client={queryClient}>
    <SettingsDialog job={testJob({ config: { learning_rate: 0.001, optimizer: { clip_norm: 1 } }, settings })} onClose={() => {}} />
  </QueryClientProvider>
);

it("sends what was changed in it, and does not undo what was changed elsewhere meanwhile", async () => {
  const sent = serveFrom(() => ({ body: testJob() }));
  const { rerender } = render(dialog(UNCHANGED));
  rerender(dialog({ ...UNCHANGED, learning_rate: 0.0005 }));
  const norm = screen.getByLabelText("Max gradient norm");
  await userEvent.clear(norm);
  await userEvent.type(norm, "2");
  await userEvent.click(screen.getByRole("button", { name: "Apply" }));
  await waitFor(() => expect(sent.find(({ method }) => method === "PATCH")?.body).toEqual({ clip_norm: 2 }));
});

// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it } from "vitest";
import { queryClient } from "@/api/client";
import { serveFrom } from "@/test-server";
import { StoredArtifactsCard } from "./stored-artifacts-card";

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

const job = { id: "4b0f", status: "completed" } as const;
const file = (number: number) => ({ id: `a${number}`, path: `out/${number}.bin`, size: 2048, sha256: "0".repeat(64), stored_at: "2026-11-01T00:00:00Z", kept_until: "2026-12-01T00:00:00Z" });

const show = () =>
  render(
    <QueryClientProvider client={queryClient}>
      <StoredArtifactsCard job={job} />
    </QueryClientProvider>,
  );

afterEach(() => {
  cleanup();
  queryClient.clear();
});

it("creates a link that expires, and says for how long it works", async () => {
  const user = userEvent.setup();
  const sent = serveFrom(({ method }) => ({ body: method === "GET" ? { items: Array.from({ length: 10 }, (_, number) => file(number)) } : { address: "https://bucket.example/x?signature=1", expires_at: "2026-11-08T00:00:00Z" } }));
  show();
  expect(await screen.findByText("10 files, kept until 1 Dec 2026")).toBeDefined();
  expect(screen.queryByText("out/9.bin")).toBeNull();
  await user.click(screen.getByRole("button", { name: "Show all 10 files" }));
  await user.click(screen.getByRole("button", { name: "Create a link to out/9.bin" }));
  expect((await screen.findByLabelText<HTMLInputElement>("Link to out/9.bin")).value).toBe("https://bucket.example/x?signature=1");
  expect(sent.find(({ method }) => method === "POST")).toEqual({ method: "POST", path: "/api/jobs/4b0f/stored-artifacts/a9/address", body: { life_seconds: 604_800 } });
});

it("shows nothing where nothing is kept", async () => {
  const sent = serveFrom(() => ({ body: { items: [] } }));
  const { container } = show();
  await waitFor(() => expect(sent.length).toBe(1));
  expect(container.textContent).toBe("");
});

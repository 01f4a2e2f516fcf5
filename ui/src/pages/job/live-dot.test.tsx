// @vitest-environment jsdom
import { cleanup, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import { modelsQuery } from "@/api/models";
import { serveFrom } from "@/test-server";
import { LiveDot } from "./job-page";

afterEach(() => {
  cleanup();
  queryClient.clear();
  vi.unstubAllGlobals();
});

const ask = () => queryClient.fetchQuery({ ...modelsQuery, retry: false }).catch(() => null);

it("calls nothing live while the server does not answer, although its stream is still open", async () => {
  let answers = false;
  serveFrom(() => {
    if (!answers) throw new TypeError("Failed to fetch");
    return { body: { items: [] } };
  });
  render(<LiveDot connection="live" />);
  expect(screen.getByText("live")).toBeDefined();
  await ask();
  await waitFor(() => expect(screen.getByText("connection lost")).toBeDefined());
  answers = true;
  await ask();
  await waitFor(() => expect(screen.getByText("live")).toBeDefined());
});

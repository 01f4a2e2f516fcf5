// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import { PageError } from "./page-error";

vi.mock("@tanstack/react-router", async (original) => ({ ...(await original<object>()), useRouter: () => ({}) }));

afterEach(cleanup);

it.each(["Failed to fetch dynamically imported module: /assets/a.js", "Unable to preload CSS for /assets/a.css"])("says that a part is missing: %s", (message) => {
  render(
    <QueryClientProvider client={queryClient}>
      <PageError error={new Error(message)} reset={() => {}} />
    </QueryClientProvider>,
  );
  expect(screen.getByRole("heading").textContent).toBe("A part of this page could not be loaded.");
});

// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it, vi } from "vitest";
import { authStateQuery } from "@/api/auth";
import { queryClient } from "@/api/client";
import { serveFrom } from "@/test-server";
import { AlertsCard } from "./alerts-card";

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

afterEach(() => {
  cleanup();
  queryClient.clear();
  vi.unstubAllGlobals();
});

async function openForm(mail: "smtp" | "outbox") {
  serveFrom(() => ({ body: { items: [], rules: [] } }));
  queryClient.setQueryData(authStateQuery.queryKey, { mail, user: null } as never);
  render(
    <QueryClientProvider client={queryClient}>
      <AlertsCard />
    </QueryClientProvider>,
  );
  await userEvent.click(await screen.findByRole("button", { name: "New channel" }));
}

const warning = () => screen.queryByText(/cannot send email/);

it("says that the server cannot send email before somebody relies on it", async () => {
  await openForm("outbox");
  expect(warning()).not.toBeNull();
  await userEvent.selectOptions(screen.getByLabelText("Kind"), "webhook");
  expect(warning()).toBeNull();
});

it("warns of nothing where email is sent", async () => {
  await openForm("smtp");
  expect(warning()).toBeNull();
});

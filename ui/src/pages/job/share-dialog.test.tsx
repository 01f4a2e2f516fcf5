// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it } from "vitest";
import { queryClient } from "@/api/client";
import { serveFrom } from "@/test-server";
import { testJob } from "@/test-job";
import { ShareDialog } from "./job-dialogs";

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

const NEW_LINK = "https://bloom.example/shared#token=abc";

let links = ["old"];

afterEach(() => {
  cleanup();
  queryClient.clear();
});

const share = (id: string) => ({ id, created_at: "2026-11-15T00:00:00Z" });

/** The dialog, with an old link and a new one whose address is visible. */
async function createLink() {
  links = ["old"];
  serveFrom(({ method, path }) => {
    if (method === "DELETE") {
      links = links.filter((id) => !path.endsWith(`/${id}`));
      return { status: 204 };
    }
    if (method === "GET") return { body: { items: links.map(share) } };
    links = ["new", ...links];
    return { status: 201, body: { link: NEW_LINK, share: share("new") } };
  });
  render(
    <QueryClientProvider client={queryClient}>
      <ShareDialog job={testJob()} onClose={() => {}} />
    </QueryClientProvider>,
  );
  await userEvent.click(screen.getByRole("button", { name: "Create a link" }));
  expect(await screen.findByText(NEW_LINK)).toBeDefined();
  await waitFor(() => expect(screen.getAllByRole("button", { name: "Revoke" })).toHaveLength(2));
}

it("keeps the address of a new link when another link is revoked", async () => {
  await createLink();
  await userEvent.click(screen.getAllByRole("button", { name: "Revoke" })[1] as HTMLElement);
  await waitFor(() => expect(screen.getAllByRole("button", { name: "Revoke" })).toHaveLength(1));
  expect(screen.queryByText(NEW_LINK)).not.toBeNull();
});

it("hides the address of a new link when that link is revoked", async () => {
  await createLink();
  await userEvent.click(screen.getAllByRole("button", { name: "Revoke" })[0] as HTMLElement);
  await waitFor(() => expect(screen.queryByText(NEW_LINK)).toBeNull());
  expect(screen.getByRole("button", { name: "Create a link" })).toBeDefined();
});

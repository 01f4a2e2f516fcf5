// @vitest-environment jsdom
import { QueryClientProvider, useQuery } from "@tanstack/react-query";
import { cleanup, configure, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import { hubTokenQuery } from "@/api/models";
import { serveFrom } from "@/test-server";
import { UnreachableNotice } from "./page";

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

afterEach(() => {
  cleanup();
  queryClient.clear();
  vi.unstubAllGlobals();
});

function Page() {
  const token = useQuery({ ...hubTokenQuery, staleTime: 0, retry: false });
  return (
    <>
      <UnreachableNotice />
      <p>{token.data && (token.data.present ? "saved" : "not set")}</p>
    </>
  );
}

const tokenIs =
  (present: boolean): Parameters<typeof serveFrom>[0] =>
  () => ({ body: { present } });

const refuseConnection = () => {
  throw new TypeError("Failed to fetch");
};

/** What a proxy answers while the server behind it is down. */
const badGateway = () => ({ status: 502 });

it.each([
  ["nothing answers", refuseConnection],
  ["a proxy answers for it", badGateway],
])("says that the server is out of reach when %s, and updates the page when it answers again", async (_, down) => {
  let answer = tokenIs(false);
  serveFrom((sent) => answer(sent));
  render(
    <QueryClientProvider client={queryClient}>
      <Page />
    </QueryClientProvider>,
  );
  await screen.findByText("not set");
  expect(screen.queryByRole("status")).toBeNull();
  answer = down;
  void queryClient.refetchQueries({ queryKey: hubTokenQuery.queryKey });
  expect((await screen.findByRole("status")).textContent).toContain("The server cannot be reached.");
  expect(screen.getByText("not set")).toBeDefined();
  answer = tokenIs(true);
  await screen.findByText("saved");
  await waitFor(() => expect(screen.queryByRole("status")).toBeNull());
});

it("does not take a problem that the server itself reports for an absent server", async () => {
  serveFrom(() => ({ status: 503, body: { code: "database_away", detail: "The database does not answer." } }));
  render(
    <QueryClientProvider client={queryClient}>
      <Page />
    </QueryClientProvider>,
  );
  await waitFor(() => expect(queryClient.getQueryState(hubTokenQuery.queryKey)?.status).toBe("error"));
  expect(screen.queryByRole("status")).toBeNull();
});

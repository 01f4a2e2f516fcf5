// @vitest-environment jsdom
import { onlineManager, QueryClientProvider, useMutation, useQuery } from "@tanstack/react-query";
import { cleanup, configure, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, expect, it } from "vitest";
import { Loaded } from "@/components/loaded";
import { UnreachableNotice } from "@/shell/page";
import { serveFrom } from "@/test-server";
import { queryClient } from "./client";
import { checkModel, modelsQuery } from "./models";
import { sentenceOf } from "./problem";

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

beforeEach(() => onlineManager.setOnline(false));

afterEach(() => {
  cleanup();
  queryClient.clear();
  onlineManager.setOnline(true);
});

function Page() {
  const models = useQuery({ ...modelsQuery, retry: false });
  const check = useMutation({ mutationFn: () => checkModel("1") });
  return (
    <>
      <UnreachableNotice />
      <Loaded query={models} skeleton={null}>
        {({ items }) => <p>{items.length} models</p>}
      </Loaded>
      <button type="button" onClick={() => check.mutate()}>
        Check
      </button>
      {check.error && <p>{sentenceOf(check.error)}</p>}
    </>
  );
}

const show = () =>
  render(
    <QueryClientProvider client={queryClient}>
      <Page />
    </QueryClientProvider>,
  );

it("reads from a server on this computer, which needs no network", async () => {
  serveFrom(() => ({ body: { items: [] } }));
  show();
  expect(await screen.findByText("0 models")).toBeDefined();
});

const refuseConnection = () => {
  throw new TypeError("Failed to fetch");
};

it("says once that the server cannot be reached instead of waiting for the network, and loads when it answers", async () => {
  let answer: Parameters<typeof serveFrom>[0] = refuseConnection;
  serveFrom((sent) => answer(sent));
  show();
  await waitFor(() => expect(queryClient.getQueryState(modelsQuery.queryKey)?.status).toBe("error"));
  expect(screen.getAllByText(/The server (cannot|could not) be reached/)).toHaveLength(1);
  answer = () => ({ body: { items: [] } });
  await screen.findByText("0 models");
  expect(screen.queryByText(/The server (cannot|could not) be reached/)).toBeNull();
});

it("says why something could not be started", async () => {
  serveFrom(refuseConnection);
  show();
  await userEvent.click(screen.getByRole("button", { name: "Check" }));
  expect(await screen.findByText(/The server could not be reached/)).toBeDefined();
});

it("reads again as soon as the network is back", async () => {
  const sent = serveFrom(() => ({ body: { items: [] } }));
  show();
  await screen.findByText("0 models");
  const before = sent.length;
  await queryClient.invalidateQueries({ refetchType: "none" });
  onlineManager.setOnline(true);
  await waitFor(() => expect(sent.length).toBeGreaterThan(before));
});

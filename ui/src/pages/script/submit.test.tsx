// @vitest-environment jsdom
import { act, cleanup, renderHook, waitFor } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import type { OfferSelection } from "@/pages/offers/offer-selection";
import { serveFrom } from "@/test-server";
import { EMPTY, withFiles } from "./script-draft";
import { useSubmit } from "./script-page";

vi.mock("@tanstack/react-router", async (original) => ({ ...(await original<object>()), useNavigate: () => () => {}, getRouteApi: () => ({}) }));

afterEach(cleanup);

const offered = (gpu: string) => ({ choice: { provider: "lambda", gpu, gpus: 1, kind: "on_demand", region: null }, connections: [] }) as unknown as OfferSelection;

it("rents the offer that was quoted, although another one is recommended meanwhile", async () => {
  const sent = serveFrom(() => ({ body: { job_id: "j" } }));
  const draft = withFiles(EMPTY, [{ path: "train.py", text: "x = 1" }]);
  const page = renderHook(({ selection }) => useSubmit(draft, selection), { initialProps: { selection: offered("A10") } });
  await act(() => page.result.current.submit());
  await waitFor(() => expect(page.result.current.quoted).not.toBeNull());
  page.rerender({ selection: offered("H100") });
  await act(() => page.result.current.quoted?.start());
  const bodies = sent.filter(({ method }) => method === "POST").map(({ path, body }) => [path, (body as { offer: { gpu: string } }).offer.gpu]);
  expect(bodies).toEqual([
    ["/api/ml-jobs/quote", "A10"],
    ["/api/ml-jobs", "A10"],
  ]);
});

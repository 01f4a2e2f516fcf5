// @vitest-environment jsdom
import { act, cleanup, renderHook } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { authStateQuery } from "@/api/auth";
import { queryClient } from "@/api/client";
import { CurrentUser } from "@/shell/session";
import { ada } from "@/test-user";
import { EMPTY, forgetDraft, loadDraft, useDraft, withFiles } from "./script-draft";

const wrapper = ({ children }: { children: ReactNode }) => <CurrentUser value={ada}>{children}</CurrentUser>;
const draft = withFiles(EMPTY, [{ path: "train.py", text: "x = 1" }]);

beforeEach(() => {
  vi.useFakeTimers();
  sessionStorage.clear();
  queryClient.setQueryData(authStateQuery.queryKey, { user: ada } as never);
});

afterEach(() => {
  cleanup();
  forgetDraft();
  queryClient.clear();
  vi.useRealTimers();
});

function typed() {
  const { result } = renderHook(useDraft, { wrapper });
  act(() => result.current[1](draft));
}

it("is written down when the typing pauses", () => {
  typed();
  act(() => vi.runAllTimers());
  expect(loadDraft(ada.id).files).toEqual(draft.files);
});

it("is not written down again once its job has started", () => {
  typed();
  forgetDraft();
  act(() => vi.runAllTimers());
  window.dispatchEvent(new Event("beforeunload"));
  expect(loadDraft(ada.id)).toEqual(EMPTY);
});

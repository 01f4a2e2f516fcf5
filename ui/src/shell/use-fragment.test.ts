import { expect, it } from "vitest";
import { fragmentValue } from "./use-fragment";

it("reads a secret with or without the sign before it", () => {
  expect(fragmentValue("#token=ab-c_1", "token")).toBe("ab-c_1");
  expect(fragmentValue("invite=x&other=y", "invite")).toBe("x");
});

it("takes an empty or absent secret for none", () => {
  expect(fragmentValue("#token=", "token")).toBeNull();
  expect(fragmentValue("", "token")).toBeNull();
});

import { expect, test } from "vitest";
import { epochText } from "./run-words";

test("a small part of an epoch is not 0", () => {
  expect([0, 0.00234, 0.5432, 3, 1234.5].map(epochText)).toEqual(["0", "0.002", "0.54", "3", "1,234"]);
});

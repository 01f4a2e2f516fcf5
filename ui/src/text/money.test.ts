import { expect, it } from "vitest";
import { hoursText } from "./hours";
import { hourlyText, moneyRange, moneyText } from "./money";

it.each([
  [0, "$0"],
  [0.004, "under $0.01"],
  [0.42, "$0.42"],
  [50, "$50"],
  [41.2, "$41.20"],
  [1234.5, "$1,235"],
])("%d dollars are written %s", (amount, text) => {
  expect(moneyText(amount)).toBe(text);
});

it("writes a range with as many digits as its larger end needs", () => {
  expect(moneyRange({ low: 2.4, high: 3.1 })).toBe("$2.40–3.10");
  expect(moneyRange({ low: 78.2, high: 186 })).toBe("$78–186");
  expect(moneyRange({ low: 0.95, high: 0.951 })).toBe("$0.95");
  expect(moneyRange({ low: 0, high: 0 })).toBe("$0");
  expect(hourlyText({ low: 1.15, high: 1.67 })).toBe("$1.15–1.67 / h");
});

it("plans long runs in days and hours, short ones in minutes", () => {
  expect(hoursText(1209)).toBe("50 d 9 h");
  expect(hoursText(3.17)).toBe("3 h 10 m");
  expect(hoursText(0.005)).toBe("18 s");
});

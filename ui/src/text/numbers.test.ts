import { describe, expect, it } from "vitest";
import { aboutText, bytesText, counted, countText, durationText, hourlyText, hoursText, metricText, modelSizeText, moneyRange, moneyText, numberOf, parametersText, secondsText, settingText } from "./numbers";

describe("numbers that are none", () => {
  const texts = [countText, metricText, settingText, bytesText, parametersText, durationText, secondsText];
  it("are written as such by every text", () => {
    for (const written of texts) expect([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY].map(written)).toEqual(["NaN", "Infinity", "-Infinity"]);
  });

  it("are read from the names that JSON has for them", () => {
    expect([1.5, "NaN", "Infinity", "-Infinity", null, "other"].map(numberOf)).toEqual([1.5, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, Number.NaN, Number.NaN]);
  });
});

describe("durations", () => {
  it.each([
    [0, "0 s"],
    [0.2, "under 1 s"],
    [59.6, "1 m"],
    [45, "45 s"],
    [61, "1 m 1 s"],
    [3600, "1 h"],
    [22_320, "6 h 12 m"],
    [2 * 86_400 + 3 * 3600 + 59, "2 d 3 h"],
    [86_400 + 59, "1 d"],
    [-4, "0 s"],
  ])("%s seconds are %s", (seconds, text) => expect(durationText(seconds)).toBe(text));

  it("are about as long as expected, unless they are too short to tell", () => {
    expect([180, 0.2].map((seconds) => aboutText(durationText(seconds)))).toEqual(["about 3 m", "under 1 s"]);
  });
});

describe("seconds of a step", () => {
  it.each([
    [1.4491, "1.45 s"],
    [52.34, "52.3 s"],
    [0.3104, "310 ms"],
    [0.9999, "1 s"],
    [0.00004, "0.04 ms"],
    [0, "0 ms"],
    [130, "2 m 10 s"],
  ])("%s are written %s", (seconds, text) => expect(secondsText(seconds)).toBe(text));
});

describe("figures", () => {
  it.each([
    [1.28449, "1.284"],
    [0.0000081, "8.1e-6"],
    [0.001, "0.001"],
    [5310.4, "5,310"],
    [0, "0"],
    [-0.5, "-0.5"],
  ])("the metric %s is written %s", (value, text) => expect(metricText(value)).toBe(text));

  it.each([
    [0.0001, "1e-4"],
    [0.05, "0.05"],
    [1000, "1,000"],
  ])("the setting %s is written %s", (value, text) => expect(settingText(value)).toBe(text));

  it.each([
    [0, "0 B"],
    [537, "537 B"],
    [999_960_000, "1 GB"],
    [118_100_000_000, "118 GB"],
    [29_500_000_000, "29.5 GB"],
  ])("%s bytes are %s", (bytes, text) => expect(bytesText(bytes)).toBe(text));

  it("name models by their parameters", () => {
    expect([771_328, 999_885_952, 1_240_000_000, 70_600_000_000, 12].map(parametersText)).toEqual(["771 k", "1 B", "1.24 B", "70.6 B", "12"]);
  });

  it("count in words", () => {
    expect([counted(1, "step"), counted(2400, "step"), counted(2, "try", "tries")]).toEqual(["1 step", "2,400 steps", "2 tries"]);
  });
});

it("says sizes below a billion in millions", () => {
  expect(modelSizeText(0.000109)).toBe("109 k");
  expect(modelSizeText(0.124)).toBe("124 M");
  expect(modelSizeText(129.5)).toBe("129.5 B");
  expect(modelSizeText(10_000)).toBe("10,000 B");
});

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

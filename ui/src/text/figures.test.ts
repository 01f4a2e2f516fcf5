import { describe, expect, it } from "vitest";
import { durationText, secondsText } from "./duration";
import { bytesText, counted, countText, metricText, numberOf, parametersText, settingText } from "./numbers";

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

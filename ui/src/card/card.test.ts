// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { chartSpecsFor, runCurve } from "@/charts/run-charts";
import { type CardData, curvesOf, hostsOf, marksOf, messageOf, type Metric, type MetricLine } from "./card-data";
import { ControlSection } from "./control-section";
import { element } from "./dom";
import { FailureSection } from "./failure-section";
import { applied, type Change } from "./live";
import { LogsSection, piecesOf } from "./logs-section";

const whole = { low: [], high: [], n: [], gaps: [], last: null };
const line = (attempt: number, x: number[], rank = 0): MetricLine => ({ attempt, rank, x, y: x.map((step) => step / 2), ...whole });
const metric = (name: string, lines = [line(1, [1, 2, 3])]): Metric => ({ name, title: name, group: "other", last: null, best: null, lines });
const logged = (text: string, rank = 0, level = "info") => ({ t: 1, rank, attempt: 1, level, line: text });

const gpu = (index: number) => ({ host: "a", gpu: index, x: [1, 2], y: [90, 91], ...whole });

const data = (parts: Partial<CardData>) =>
  ({ metrics: [], system: { nodes: [], series: [] }, discontinuities: [], logs: { lines: [], total: 0, errors: 0 }, ranks: [], ...parts }) as unknown as CardData;

const gapsIn = (broken: MetricLine) => curvesOf(data({ metrics: [metric("train/loss", [broken])] })).get("train/loss");

describe("the charts of a card", () => {
  it("are those of the job page: per GPU, and the sum of all in a chart of its own", () => {
    const series = { name: "gpu/power", title: "GPU power", unit: "W", lines: [gpu(0), gpu(1)], aggregate: { how: "sum", x: [1], y: [180], ...whole } };
    const card = data({ system: { nodes: [{ host: "a", ranks: [0, 1], gpus: [], last: {} }], series: [series] } });
    const curves = [...curvesOf(card).values()];
    expect(curves.map((curve) => [curve.name, curve.x.length])).toEqual([["system/gpu/0/power", 2], ["system/gpu/1/power", 2], ["system/all/sum/gpu/power", 1]]);
    const { system } = chartSpecsFor(curves.map(runCurve), hostsOf(card));
    expect(system.map((spec) => [spec.title, spec.lines.map((one) => one.label)])).toEqual([["GPU power", ["GPU 0", "GPU 1"]], ["GPU power, sum", ["sum"]]]);
  });

  it("keep the attempts of a metric apart in one curve", () => {
    const curves = curvesOf(data({ metrics: [metric("train/loss", [line(2, [2, 3]), line(1, [1, 2])])] }));
    const curve = curves.get("train/loss");
    expect(curve?.x).toEqual([1, 2, 2, 3]);
    expect(curve?.attempt).toEqual([1, 1, 2, 2]);
  });

  it("take what was not a number as a gap, also in a snapshot of an older version", () => {
    expect(gapsIn({ attempt: 1, rank: 0, x: [1, 2], y: [1, null] })).toMatchObject({ x: [1], gaps: { x: [2], attempt: [1] } });
    expect(gapsIn({ attempt: 2, rank: 0, x: [1, 2], y: [1, null], ...whole, gaps: [2] })).toMatchObject({ x: [1], gaps: { x: [2], attempt: [2] } });
  });

  it("keep apart what telemetry measured before and after nobody looked", () => {
    const paused = { ...gpu(0), x: [1, 2, 2, 9], y: [90, 91, null, 80] };
    const series = { name: "gpu/power", title: "GPU power", unit: "W", lines: [paused], aggregate: null };
    expect(curvesOf(data({ system: { nodes: [], series: [series] } })).get("system/gpu/0/power")).toMatchObject({ x: [1, 2, 9], attempt: [1, 1, 2], gaps: { x: [] } });
  });

  it("draw a thinned line as means with a band, and know the last reported value", () => {
    const thinned = { attempt: 1, rank: 0, x: [32, 96], y: [2.06, 1.98], low: [2, 1.127], high: [8, 2], last: 1.127 };
    const curve = curvesOf(data({ metrics: [metric("train/loss", [thinned])] })).get("train/loss");
    expect([curve?.value, curve?.low, curve?.high]).toEqual([[2.06, 1.98], [2, 1.127], [8, 2]]);
    expect(curve?.last).toEqual({ x: 96, attempt: 1, value: 1.127 });
  });

  it("mark where an attempt took over, and why", () => {
    const mark = { attempt: 2, step: 50, previous_step: 60, repeated_steps: 10, reason: "preempted", t: null };
    expect(marksOf(data({ discontinuities: [mark] }))).toEqual([{ step: 50, label: "attempt 2, 10 steps repeated: preempted", kind: "resume" }]);
  });
});

describe("the log of a card", () => {
  it("collapses a traceback that came in one line or in several", () => {
    const trace = ["Traceback (most recent call last):", '  File "a.py", line 1', "ValueError: no"];
    const pieces = piecesOf([logged("before"), logged(trace.join("\n")), ...trace.map((text) => logged(text)), logged("after")], false);
    expect(pieces.map(({ piece }) => piece.kind)).toEqual(["line", "traceback", "traceback", "line"]);
  });

  it("does not mix the tracebacks of two ranks", () => {
    const pieces = piecesOf([logged("Traceback (most recent call last):", 0), logged("rank one goes on", 1), logged("ValueError: no", 0)], true);
    expect(pieces.map(({ from }) => from.rank)).toEqual([0, 1, 0]);
  });

  it("keeps what is searched for while lines come in", () => {
    const logs = new LogsSection();
    const show = (lines: string[]) => logs.show(data({ logs: { lines: lines.map((text) => logged(text)), total: lines.length, errors: 0 } }));
    show(["a needle", "hay"]);
    const search = logs.root.querySelector("input[type=search]");
    if (!(search instanceof HTMLInputElement)) throw new Error("no search field");
    search.value = "NEEDLE";
    search.dispatchEvent(new Event("input"));
    show(["a needle", "hay", "another needle"]);
    expect([...logs.root.querySelectorAll(".line")].map((one) => one.textContent)).toHaveLength(2);
    expect([...logs.root.querySelectorAll("mark")].map((one) => one.textContent)).toEqual(["needle", "needle"]);
  });
});

it("shows the output of a process that reports no lines, and lets one choose where there are both", () => {
  const logs = new LogsSection();
  const texts = () => [...logs.root.querySelectorAll(".line")].map((one) => one.textContent);
  logs.show(data({ logs: { lines: [], total: 0, errors: 0, output: ["printed 1", "printed 2"] } }));
  expect(texts()).toEqual(["printed 1", "printed 2"]);
  logs.show(data({ logs: { lines: [logged("reported")], total: 1, errors: 0, output: ["printed 1", "printed 2"] } }));
  expect(texts()[0]).toContain("reported");
  const which = logs.root.querySelector("select");
  if (!(which instanceof HTMLSelectElement)) throw new Error("no choice");
  expect(which.hidden).toBe(false);
  which.value = "output";
  which.dispatchEvent(new Event("change"));
  expect(texts()).toEqual(["printed 1", "printed 2"]);
});

it("offers commands only to a loop that looks for them", () => {
  const control = new ControlSection();
  const show = (listens: boolean, phase: string | null) =>
    control.show(data({ control: { version: 0, listens, applied: null, want: "run", set: {}, refused: {}, resumes: false, is_held: true, problem: null }, status: { status: "running", phase } as CardData["status"] }));
  const pause = () => [...control.root.querySelectorAll("button")].find((one) => one.textContent === "Pause");
  show(false, null);
  expect(pause()?.hidden).toBe(false);
  show(false, "train");
  expect(pause()?.hidden).toBe(true);
  expect(control.root.textContent).toContain("does not look for commands");
  show(true, "train");
  expect(pause()?.hidden).toBe(false);
});

it("keeps the stack trace of an earlier attempt", () => {
  const failure = new FailureSection();
  const error = { type: "ValueError", message: "first", traceback: "Traceback: first", cause: null };
  failure.show(data({ failure: null, status: { status: "running" } as CardData["status"], attempts: [{ attempt: 1, status: "failed", ended_at: 1, error }, { attempt: 2, status: "running", ended_at: null, error: null }] }));
  expect(failure.root.querySelector("summary")?.textContent).toContain("Attempt 1: ValueError");
  expect(failure.root.textContent).toContain("Traceback: first");
});

it("names an exception once", () => {
  expect(messageOf({ type: "torch.OutOfMemoryError", message: "OutOfMemoryError: too much" })).toBe("too much");
  expect(messageOf({ type: "ValueError", message: "no" })).toBe("no");
});

it("puts what a run says into the page as text", () => {
  expect(element("p", {}, "<img src=x onerror=alert(1)>").innerHTML).toBe("&lt;img src=x onerror=alert(1)&gt;");
});

const change = (parts: Partial<Change>): Change => ({ type: "change", made_at: 2, sections: {}, metrics: [], points: [], log: [], log_counts: { total: 0, errors: 0 }, system: null, ...parts });

describe("a live page", () => {
  const short = { name: "train/loss", title: "loss", group: "loss", last: { step: 3, value: 1 }, best: null };

  it("keeps what it is told to keep of a line, and appends the rest", () => {
    const before = data({ metrics: [metric("train/loss", [line(1, [1, 2, 3])])] });
    const after = applied(before, change({ points: [{ name: "train/loss", rank: 0, attempt: 1, keep: 2, x: [4, 5], y: [0, null], low: [], high: [], n: [], gaps: [5], last: "NaN" }] }));
    expect(after.metrics[0]?.lines[0]).toEqual({ attempt: 1, rank: 0, x: [1, 2, 4, 5], y: [0.5, 1, 0, null], low: [], high: [], n: [], gaps: [5], last: "NaN" });
    expect(after.made_at).toBe(2);
  });

  it("takes up metrics, attempts and GPUs that are new", () => {
    const system = { nodes: [], series: [{ name: "gpu/power", title: "GPU power", unit: "W", aggregate: null, lines: [{ host: "a", gpu: 0, keep: 0, x: [1], y: [300], ...whole }] }] };
    const points = [1, 2].map((attempt) => ({ name: "train/loss", rank: 0, attempt, keep: 0, x: [1], y: [2], ...whole }));
    const after = applied(data({}), change({ metrics: [short], points, system }));
    expect(after.metrics[0]).toMatchObject({ title: "loss", lines: [{ attempt: 1 }, { attempt: 2 }] });
    expect(after.system.series[0]?.lines).toEqual([{ host: "a", gpu: 0, x: [1], y: [300], ...whole }]);
  });

  it("replaces sections that changed and keeps the last thousand lines of the log", () => {
    const before = data({ logs: { lines: Array.from({ length: 999 }, (_, index) => logged(String(index))), total: 999, errors: 0 } });
    const after = applied(before, change({ sections: { name: "other" }, log: [logged("a"), logged("b")], log_counts: { total: 1001, errors: 0 } }));
    expect([after.name, after.logs.lines.length, after.logs.lines[0]?.line, after.logs.total]).toEqual(["other", 1000, "1", 1001]);
  });
});

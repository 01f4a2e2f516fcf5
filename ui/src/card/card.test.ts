// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { type CardData, curvesOf, marksOf, messageOf, type Metric, type MetricLine } from "./card-data";
import { metricChartSpecs, partsOf, systemChartSpecs, unitFormat } from "./chart-specs";
import { element } from "./dom";
import { applied, type Change } from "./live";
import { LogsSection, piecesOf } from "./logs-section";

const whole = { low: [], high: [], last: null };
const line = (attempt: number, x: number[], rank = 0): MetricLine => ({ attempt, rank, x, y: x.map((step) => step / 2), ...whole });
const metric = (name: string, lines = [line(1, [1, 2, 3])]): Metric => ({ name, title: name, group: "other", last: null, best: null, lines });
const logged = (text: string, rank = 0, level = "info") => ({ t: 1, rank, attempt: 1, level, line: text });

const gpu = (index: number) => ({ host: "a", gpu: index, x: [1, 2], y: [90, 91], ...whole });

const data = (parts: Partial<CardData>) =>
  ({ metrics: [], system: { nodes: [], series: [] }, discontinuities: [], logs: { lines: [], total: 0, errors: 0 }, ranks: [], ...parts }) as unknown as CardData;

describe("the charts of a card", () => {
  it("draw training and evaluation of one metric together, known metrics first", () => {
    const specs = metricChartSpecs([metric("zebra/count"), metric("train/learning_rate"), metric("eval/loss"), metric("train/loss")]);
    expect(specs.map((spec) => spec.title)).toEqual(["Loss", "Learning rate", "Zebra/count"]);
    expect(specs[0]?.lines.map((one) => one.label)).toEqual(["eval", "train"]);
    expect(new Set(specs[0]?.lines.map((one) => one.colour)).size).toBe(2);
  });

  it("name the rank only where several report", () => {
    const [alone] = metricChartSpecs([metric("train/step_seconds")]);
    const [several] = metricChartSpecs([metric("train/step_seconds", [line(1, [1]), line(1, [1], 3)])]);
    expect(alone?.lines.map((one) => one.label)).toEqual(["train"]);
    expect(several?.lines.map((one) => one.label)).toEqual(["train · rank 0", "train · rank 3"]);
  });

  it("show every GPU, and all of them as one line", () => {
    const series = { name: "gpu/utilization", title: "GPU utilization", unit: "%", lines: [gpu(0), gpu(1)], aggregate: { how: "mean", x: [1], y: [90], ...whole } };
    const [spec] = systemChartSpecs({ nodes: [], series: [series, { ...series, name: "gpu/memory_total" }] });
    expect(spec?.lines.map((one) => one.label)).toEqual(["GPU 0", "GPU 1", "mean of all"]);
    expect(spec?.range).toEqual({ from: 0, to: 100 });
    expect([...curvesOf(data({ system: { nodes: [], series: [series] } })).values()].map((curve) => curve.x.length)).toEqual([2, 2, 1]);
  });

  it("keep the attempts of a metric apart in one curve", () => {
    const curves = curvesOf(data({ metrics: [metric("train/loss", [line(2, [2, 3]), line(1, [1, 2])])] }));
    const curve = curves.get("metric 0 train/loss");
    expect(curve?.x).toEqual([1, 2, 2, 3]);
    expect(curve?.attempt).toEqual([1, 1, 2, 2]);
  });

  it("take what was not a number as a gap", () => {
    const broken = { attempt: 1, rank: 0, x: [1, 2], y: [1, null], ...whole };
    expect(curvesOf(data({ metrics: [metric("train/loss", [broken])] })).get("metric 0 train/loss")?.value).toEqual([1, Number.NaN]);
  });

  it("draw a thinned line as means with a band, and know the last reported value", () => {
    const thinned = { attempt: 1, rank: 0, x: [32, 96], y: [2.06, 1.98], low: [2, 1.127], high: [8, 2], last: 1.127 };
    const curve = curvesOf(data({ metrics: [metric("train/loss", [thinned])] })).get("metric 0 train/loss");
    expect([curve?.value, curve?.low, curve?.high]).toEqual([[2.06, 1.98], [2, 1.127], [8, 2]]);
    expect(curve?.last).toEqual({ x: 96, attempt: 1, value: 1.127 });
  });

  it("mark where an attempt took over, and why", () => {
    const mark = { attempt: 2, step: 50, previous_step: 60, repeated_steps: 10, reason: "preempted", t: null };
    expect(marksOf(data({ discontinuities: [mark] }))).toEqual([{ step: 50, label: "attempt 2, 10 steps repeated: preempted" }]);
  });

  it("read a name as metric, split and tags", () => {
    expect(partsOf("train/loss{expert=3}")).toEqual({ metric: "loss", split: "train", tags: "expert=3" });
    expect(partsOf("rouge/l")).toEqual({ metric: "rouge/l", split: "", tags: "" });
  });

  it("write values with their unit", () => {
    expect([unitFormat("%")(97.4), unitFormat("bytes/s")(2e6), unitFormat("°C")(61.2), unitFormat("")(0.5)]).toEqual(["97 %", "2 MB/s", "61 °C", "0.5"]);
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
    const after = applied(before, change({ points: [{ name: "train/loss", rank: 0, attempt: 1, keep: 2, x: [4, 5], y: [0, null], low: [], high: [], last: "NaN" }] }));
    expect(after.metrics[0]?.lines[0]).toEqual({ attempt: 1, rank: 0, x: [1, 2, 4, 5], y: [0.5, 1, 0, null], low: [], high: [], last: "NaN" });
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

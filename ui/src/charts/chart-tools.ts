/** The controls that all charts of a page share: smoothing, scale, axis, and the part of the run in view. */
import { ALONG_NAMES, type Along } from "./along";
import type { ChartView } from "./chart-view";
import { element } from "./element";

const RANGES = [
  ["whole", "Whole run", 1],
  ["half", "Last 50 %", 0.5],
  ["tenth", "Last 10 %", 0.1],
] as const;

export type ToolOptions = {
  /** The series whose length is that of the run; without it there is no choice of a part. */
  lengthOf?: string;
  /** Where the page chooses the axis itself. */
  hasAxis?: boolean;
  /** False where every point is shown as it is. */
  hasSmoothing?: boolean;
};

/** The element, and how to take it away again. */
export function chartTools(view: ChartView, { lengthOf = "train/loss", hasAxis = true, hasSmoothing = true }: ToolOptions = {}): { root: HTMLElement; destroy: () => void } {
  const smoothing = element("input", { type: "range", min: "0", max: "0.98", step: "0.02", "aria-label": "Smoothing" });
  const strength = element("output");
  smoothing.addEventListener("input", () => view.change({ smoothing: Number(smoothing.value) }));
  const logarithmic = element("input", { type: "checkbox" });
  logarithmic.addEventListener("change", () => view.change({ logarithmic: logarithmic.checked }));
  const along = element("select", { "aria-label": "Horizontal axis" });
  along.addEventListener("change", () => view.change({ along: along.value as Along }));
  const range = element("select", { "aria-label": "Part of the run" }, ...RANGES.map(([value, text]) => element("option", { value }, text)), element("option", { value: "own", hidden: true }, "Zoomed"));
  range.addEventListener("change", () => showPart(view, lengthOf, RANGES.find(([value]) => value === range.value)?.[2] ?? 1));
  const reset = element("button", { type: "button" }, "Reset zoom");
  reset.addEventListener("click", () => {
    view.setZoom("step", null);
    view.setZoom("time", null);
  });
  const axisChoice = element("label", {}, "Along ", along);
  let offered = "";

  const write = () => {
    const choices = view.choices();
    if (offered !== choices.join()) {
      offered = choices.join();
      along.replaceChildren(...choices.map((choice) => element("option", { value: choice }, ALONG_NAMES[choice].toLowerCase())));
    }
    axisChoice.hidden = !hasAxis || choices.length < 2;
    along.value = view.along;
    range.hidden = !view.source.curve(lengthOf);
    smoothing.value = String(view.smoothing);
    strength.textContent = view.smoothing.toFixed(2);
    logarithmic.checked = view.logarithmic;
    reset.hidden = !view.zoom.step && !view.zoom.time;
    if (reset.hidden) range.value = "whole";
    else if (range.value === "whole") range.value = "own";
  };
  write();
  const stops = [view.subscribe(write), view.source.subscribe(write)];
  const root = element(
    "div",
    { class: "chart-settings", role: "group", "aria-label": "Chart settings" },
    reset,
    range,
    axisChoice,
    ...(hasSmoothing ? [element("label", {}, "Smoothing ", smoothing, strength)] : []),
    element("label", {}, logarithmic, "Log scale"),
  );
  return { root, destroy: () => stops.forEach((stop) => stop()) };
}

/** The last part of the run, up to now. */
function showPart(view: ChartView, name: string, share: number) {
  const axis = view.axisOf("step");
  const x = view.read(name)?.x;
  const [first, last] = [x?.[0], x?.at(-1)];
  if (share === 1 || first === undefined || last === undefined || first === last) view.setZoom(axis, null);
  else view.setZoom(axis, { from: last - (last - first) * share, to: last });
}

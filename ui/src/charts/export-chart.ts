/** A chart as a file: its points as CSV, its drawing as PNG or SVG. The SVG is also what is printed. */
import { describeChart, tableCells } from "./describe";
import { type Along, ALONG_NAMES } from "./along";
import type { ChartSpec } from "./chart-spec";
import { type PlacedMark, resolved, xLabels } from "./plot";
import { type CurvePoints, isThinned, type Picture } from "./plot-data";

type Read = (name: string) => CurvePoints | undefined;

const quoted = (text: string) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** All points that the page has, as they were reported: not smoothed. Times are in UTC. A mean of several values has its extremes and their number beside it. */
export function csvOf(spec: Pick<ChartSpec, "lines">, read: Read, along: Along): string {
  const thinned = spec.lines.map((line) => isThinned(read(line.name) ?? { low: [], high: [] }));
  const header = [ALONG_NAMES[along].toLowerCase(), "attempt", ...spec.lines.flatMap(({ label }, index) => (thinned[index] ? [`${label} mean`, `${label} min`, `${label} max`, `${label} count`] : [label]))];
  const rows = tableCells(spec.lines, read).toSorted((a, b) => a.attempt - b.attempt || a.x - b.x);
  const lines = rows.map(({ x, attempt, cells }) => [
    along === "time" ? new Date(x * 1000).toISOString() : String(x),
    String(attempt),
    ...cells.flatMap((cell, index) => {
      if (!cell) return thinned[index] ? ["", "", "", ""] : [""];
      const { value, low = value, high = value, count = 1 } = cell;
      return (thinned[index] ? [value, low, high, count] : [value]).map(String);
    }),
  ]);
  return `${[header, ...lines].map((line) => line.map(quoted).join(",")).join("\n")}\n`;
}

type Ends = { x: [number, number]; y: [number, number] };
export type Drawing = { spec: ChartSpec; picture: Picture; read: Read; marks: readonly PlacedMark[]; along: Along; logarithmic: boolean; ends: Ends | null; width: number; height: number };

const LEFT = 66;
const RIGHT = 14;
const TOP = 48;
const BOTTOM = 26;

const escaped = (text: string) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");

const scaled = (value: number, [from, to]: [number, number], start: number, length: number) => start + (to === from ? 0.5 : (value - from) / (to - from)) * length;

/** The chart as vectors. `paint` turns a colour of the palette into one that the reader of the file knows. */
export function svgOf(drawing: Drawing, paint: (colour: string) => string = resolved): string {
  const { spec, picture, width, height, logarithmic, along, marks } = drawing;
  const ends = drawing.ends ?? endsOf(picture, spec.range);
  const flat = (value: number) => (logarithmic ? Math.log10(value) : value);
  const inner = { width: width - LEFT - RIGHT, height: height - TOP - BOTTOM };
  const xAt = (value: number) => scaled(value, ends.x, LEFT, inner.width);
  const yEnds: [number, number] = [flat(ends.y[0]), flat(ends.y[1])];
  const yAt = (value: number) => scaled(flat(value), yEnds, TOP + inner.height, -inner.height);
  const at = (x: number, y: number) => `${xAt(x).toFixed(1)},${yAt(y).toFixed(1)}`;
  const ink = paint("var(--chart-ink)");
  const parts: string[] = [];

  const text = (x: number, y: number, words: string, more = "") => parts.push(`<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" fill="${ink}" ${more}>${escaped(words)}</text>`);
  const yTicks = logarithmic ? powersOfTen(ends.y) : ticks(ends.y, 5);
  for (const tick of yTicks) {
    parts.push(`<path d="M${LEFT} ${yAt(tick).toFixed(1)}h${inner.width}" stroke="${paint("var(--chart-grid)")}"/>`);
    text(LEFT - 6, yAt(tick) + 4, spec.format(tick), 'text-anchor="end"');
  }
  const xTicks = ticks(ends.x, 6);
  xLabels(xTicks, along).forEach((label, index) => text(xAt(xTicks[index] ?? 0), height - 8, label, 'text-anchor="middle"'));

  // An inner picture in the same coordinates: what lies outside the scales is cut off.
  parts.push(`<svg x="${LEFT}" y="${TOP}" width="${inner.width}" height="${inner.height}" viewBox="${LEFT} ${TOP} ${inner.width} ${inner.height}">`);
  const [x] = picture.data;
  const pointsOf = (index: number) => runsOf(x, picture.data[index + 1] ?? []);
  picture.columns.forEach(({ line, role, repeated }, index) => {
    const colour = paint(line.colour);
    if (role === "high") return;
    if (role === "low") {
      const low = pointsOf(index).flat();
      const high = pointsOf(index + 1).flat();
      parts.push(`<polygon points="${[...low.map(([px, py]) => at(px, py)), ...high.toReversed().map(([px, py]) => at(px, py))].join(" ")}" fill="${colour}" fill-opacity="0.2"/>`);
      return;
    }
    const strength = (role === "raw" ? 0.3 : 1) * (repeated ? 0.4 : 1);
    for (const run of pointsOf(index)) {
      if (run.length === 1 || line.dots) for (const [px, py] of run) parts.push(`<circle cx="${xAt(px).toFixed(1)}" cy="${yAt(py).toFixed(1)}" r="2.5" fill="${colour}"/>`);
      if (run.length > 1) {
        const dash = line.failed ? ' stroke-dasharray="5 4"' : "";
        parts.push(`<polyline points="${run.map(([px, py]) => at(px, py)).join(" ")}" fill="none" stroke="${colour}" stroke-width="${role === "raw" ? 1 : 1.8}" stroke-opacity="${strength}"${dash}/>`);
      }
    }
  });
  for (const mark of marks) {
    if (mark.x < ends.x[0] || mark.x > ends.x[1]) continue;
    const px = xAt(mark.x).toFixed(1);
    if (mark.kind === "epoch") parts.push(`<path d="M${px} ${TOP + inner.height}v-6" stroke="${ink}"/>`);
    else if (mark.kind === "best" && mark.y !== undefined) parts.push(`<circle cx="${px}" cy="${yAt(mark.y).toFixed(1)}" r="5" fill="none" stroke="${paint("var(--chart-green)")}" stroke-width="2"/>`);
    else if (mark.kind !== "best") parts.push(`<path d="M${px} ${TOP}v${inner.height}" stroke="${paint("var(--chart-mark)")}" stroke-dasharray="3 4"><title>${escaped(mark.label)}</title></path>`);
  }
  for (const { x: cx, y: cy, line } of picture.crosses) {
    const [px, py] = [xAt(cx), cy === null ? TOP + inner.height / 2 : yAt(cy)];
    parts.push(`<path d="M${(px - 4).toFixed(1)} ${(py - 4).toFixed(1)}l8 8m0 -8l-8 8" stroke="${paint(line.colour)}" stroke-width="2"/>`);
  }
  parts.push("</svg>");
  let after = LEFT;
  for (const line of spec.lines) {
    const last = drawing.read(line.name)?.last;
    if (!last || after > width - 120) continue;
    const words = `${line.label} ${spec.format(last.value)}`;
    parts.push(`<path d="M${after} 34h12" stroke="${paint(line.colour)}" stroke-width="3"/>`);
    text(after + 17, 38, words);
    after += 17 + words.length * 6.3 + 16;
  }
  const words = describeChart({ ...spec, along }, drawing.read, []);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${escaped(words)}" font-family="Inter, system-ui, sans-serif" font-size="11">`,
    `<text x="8" y="16" fill="${paint("var(--chart-text)")}" font-size="13" font-weight="600">${escaped(spec.title)}</text>`,
    ...parts,
    "</svg>",
  ].join("");
}

/** Stretches of a line without a gap in them. */
function runsOf(x: readonly number[], y: readonly (number | null | undefined)[]): [number, number][][] {
  const runs: [number, number][][] = [[]];
  y.forEach((value, index) => {
    if (value === null) runs.push([]);
    else if (value !== undefined) runs.at(-1)?.push([x[index] ?? 0, value]);
  });
  return runs.filter((run) => run.length > 0);
}

/** Scales for a drawing that was never on a screen. */
function endsOf({ data: [x, ...columns] }: Picture, range: ChartSpec["range"]): Ends {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const column of columns) {
    for (const value of column) {
      if (typeof value !== "number") continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  if (low > high) [low, high] = [0, 1];
  if (low === high) [low, high] = [low - 1, high + 1];
  return { x: [x[0] ?? 0, x.at(-1) ?? 1], y: [range?.from ?? low, range?.to ?? high] };
}

/** Round numbers between two ends: one, two or five times a power of ten apart. */
function ticks([from, to]: [number, number], about: number): number[] {
  const raw = (to - from) / about;
  if (!(raw > 0)) return [from];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = ([1, 2, 5, 10].find((factor) => factor * power >= raw) ?? 10) * power;
  const found: number[] = [];
  for (let count = Math.ceil(from / step); count * step <= to + step * 1e-9; count += 1) found.push(Number((count * step).toPrecision(12)));
  return found;
}

function powersOfTen([from, to]: [number, number]): number[] {
  const found: number[] = [];
  for (let power = Math.ceil(Math.log10(from)); power <= Math.log10(to); power += 1) found.push(10 ** power);
  return found;
}

const PNG_SCALE = 2;

/** The chart as a picture, with title and legend, at twice the size so that it is sharp on paper and slides. */
export async function pngOf(drawing: Drawing): Promise<Blob> {
  const image = new Image();
  const loaded = new Promise((resolve, reject) => {
    image.addEventListener("load", resolve);
    image.addEventListener("error", () => reject(new Error("The browser cannot draw the chart as a picture.")));
  });
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgOf(drawing))}`;
  await loaded;
  const canvas = document.createElement("canvas");
  canvas.width = drawing.width * PNG_SCALE;
  canvas.height = drawing.height * PNG_SCALE;
  const context = canvas.getContext("2d");
  if (!context) throw new Error("The browser has no memory left for the picture.");
  context.fillStyle = resolved("var(--chart-surface)");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The browser has no memory left for the picture.")))));
}

/** Gives a file to the person. */
export function download(name: string, content: Blob) {
  const address = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

export const fileName = (title: string, ending: string) => `${title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "chart"}.${ending}`;

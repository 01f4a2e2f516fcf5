/**
 * One colour for one series: training violet, evaluation teal, the process (rates, norms, speeds) blue. A series
 * keeps its colour when others appear beside it. The colours are in styles/app.css and card/card.css.
 */
export const VIOLET = "var(--chart-violet)";
export const TEAL = "var(--chart-teal)";
export const BLUE = "var(--chart-blue)";
export const AMBER = "var(--chart-amber)";
export const GREEN = "var(--chart-green)";

const PALETTE = [VIOLET, TEAL, AMBER, BLUE, GREEN, "var(--chart-pink)", "var(--chart-red)", "var(--chart-olive)"] as const;

/** The colour of a group of runs, a GPU or a rank, by its number. */
export const paletteColour = (index: number): string => PALETTE[index % PALETTE.length] ?? VIOLET;

const SPLITS = new Set(["train", "eval", "test"]);

/** "train/loss{expert=3}" is the metric "loss", of the split "train", with the tags "expert=3". */
export function partsOf(name: string): { metric: string; split: string; tags: string } {
  const brace = name.indexOf("{");
  const bare = brace === -1 ? name : name.slice(0, brace);
  const tags = brace === -1 ? "" : name.slice(brace + 1, -1);
  const slash = bare.indexOf("/");
  const split = slash !== -1 && SPLITS.has(bare.slice(0, slash)) ? bare.slice(0, slash) : "";
  return { metric: split ? bare.slice(slash + 1) : bare, split, tags };
}

const PROCESS = /(learning_rate|norm|_per_second|_seconds|runtime|_time|tokens|samples|_bytes|_scale|flops|mfu)$/;

/** Whether a metric says how training runs, not how well the model does. Training and evaluation differ in scale then. */
export const isProcess = (metric: string) => PROCESS.test(metric);

function baseColour(metric: string, split: string): string {
  if (isProcess(metric)) return BLUE;
  return split === "eval" ? TEAL : split === "test" ? GREEN : VIOLET;
}

const assigned = new Map<string, string>();

/** The colour of a line of a chart. `chart` names the chart: lines of one chart never share a colour while there are enough. */
export function colourOf(chart: string, name: string, rank: number): string {
  const key = `${chart} ${rank} ${name}`;
  const known = assigned.get(key);
  if (known !== undefined) return known;
  const { metric, split, tags } = partsOf(name);
  const base = baseColour(metric, split);
  const colour = tags === "" && rank === 0 ? base : free(chart, base, preferred(tags, split) + rank);
  assigned.set(key, colour);
  return colour;
}

function free(chart: string, base: string, wanted: number): string {
  const others = PALETTE.filter((colour) => colour !== base && colour !== VIOLET && colour !== TEAL);
  const used = new Set([...assigned].flatMap(([key, colour]) => (key.startsWith(`${chart} `) ? [colour] : [])));
  for (let step = 0; step < others.length; step += 1) {
    const colour = others[(wanted + step) % others.length];
    if (colour !== undefined && !used.has(colour)) return colour;
  }
  return others[wanted % others.length] ?? base;
}

/** A number in the tags counts; other tags are spread over the colours. */
function preferred(tags: string, split: string): number {
  const number = /(\d+)$/.exec(tags)?.[1];
  let slot = number === undefined ? 0 : Number(number);
  if (number === undefined) for (const character of tags) slot = (slot * 31 + character.charCodeAt(0)) % 9973;
  return slot + (split === "eval" ? 3 : 0);
}

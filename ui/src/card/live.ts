/**
 * The live page: what the server of one run says over a WebSocket, as the data that the card shows. It sends
 * the run once whole, and from then on what changed; lines keep their first points and get new ones at the end.
 */
import type { CardData, Line, LogLine, Metric, SystemSeries } from "./card-data";

type Grown = Line & { keep: number };
export type Change = {
  type: "change";
  made_at: number;
  sections: Partial<CardData>;
  metrics: Omit<Metric, "lines">[];
  points: (Grown & { name: string; rank: number; attempt: number })[];
  log: LogLine[];
  log_counts: { total: number; errors: number };
  output?: string[] | null;
  clock?: CardData["clock"] | null;
  system: { nodes: CardData["system"]["nodes"]; series: (Omit<SystemSeries, "lines"> & { lines: (Grown & { host: string | null; gpu: number | null })[] })[] } | null;
};
type Message = { type: "run"; run: CardData } | Change;

const MOST_LINES = 1000;
const PROTOCOL = "bloom.run.v1";
const RECONNECT_DELAY_MS = 2000;

const NO_POINTS: Line = { x: [], y: [], low: [], high: [], n: [], gaps: [], last: null };

const grow = (line: Line, { keep, x, y, low, high, n, gaps, last }: Grown) => {
  line.x = line.x.slice(0, keep).concat(x);
  line.y = line.y.slice(0, keep).concat(y);
  line.low = line.low?.slice(0, keep).concat(low ?? []);
  line.high = line.high?.slice(0, keep).concat(high ?? []);
  line.n = line.n?.slice(0, keep).concat(n ?? []);
  line.gaps = gaps;
  line.last = last;
};

/** The element that fits, or a new one at the end. */
function findOrAdd<T>(all: T[], fits: (one: T) => boolean, made: T): T {
  const there = all.find(fits);
  if (there) return there;
  all.push(made);
  return made;
}

/** The data after a change; curves are changed in place, for they are long. */
export function applied(data: CardData, change: Change): CardData {
  const metrics = data.metrics;
  for (const short of change.metrics) {
    Object.assign(findOrAdd(metrics, (one) => one.name === short.name, { ...short, lines: [] }), short);
  }
  for (const { name, rank, attempt, ...grown } of change.points) {
    const lines = metrics.find((one) => one.name === name)?.lines;
    if (lines) grow(findOrAdd(lines, (one) => one.rank === rank && one.attempt === attempt, { rank, attempt, ...NO_POINTS }), grown);
  }
  const system = data.system;
  if (change.system) {
    system.nodes = change.system.nodes;
    for (const { lines, ...series } of change.system.series) {
      const own = findOrAdd(system.series, (one) => one.name === series.name, { ...series, lines: [] });
      own.aggregate = series.aggregate;
      for (const { host, gpu, ...grown } of lines) {
        grow(findOrAdd(own.lines, (one) => one.host === host && one.gpu === gpu, { host, gpu, ...NO_POINTS }), grown);
      }
    }
  }
  const logs = { lines: data.logs.lines.concat(change.log).slice(-MOST_LINES), ...change.log_counts, output: change.output ?? data.logs.output };
  return { ...data, ...change.sections, ...(change.clock ? { clock: change.clock } : {}), made_at: change.made_at, metrics, system, logs };
}

/** Keeps the card up to date for as long as the page is open; reports whether the server is connected. */
export function follow(token: () => string, show: (data: CardData) => void, onConnectionChange: (isThere: boolean) => void) {
  let data: CardData | null = null;
  const connect = () => {
    const address = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`;
    // A browser can send a token with a WebSocket only as the name of a protocol.
    const socket = new WebSocket(address, token() ? [PROTOCOL, `token.${token()}`] : [PROTOCOL]);
    socket.addEventListener("message", ({ data: text }: MessageEvent<string>) => {
      const message = JSON.parse(text) as Message;
      if (message.type === "run") data = message.run;
      else if (data) data = applied(data, message);
      if (!data) return;
      onConnectionChange(true);
      show(data);
    });
    socket.addEventListener("close", () => {
      onConnectionChange(false);
      setTimeout(connect, RECONNECT_DELAY_MS);
    });
  };
  connect();
}

import { MEMORY_KINDS, type MemoryKind, type MemoryUse } from "@/api/plan";
import { bytesText } from "@/text/numbers";

const LEGEND: Record<MemoryKind, { name: string; colour: string }> = {
  weights: { name: "weights", colour: "var(--color-primary-bright)" },
  gradients: { name: "gradients", colour: "var(--color-primary-mid)" },
  optimizer: { name: "optimizer", colour: "var(--color-primary-soft)" },
  activations: { name: "activations", colour: "var(--color-violet-soft)" },
  overhead: { name: "other", colour: "var(--color-teal)" },
};

type MemoryBarsProps = {
  memories: readonly MemoryUse[];
  /** What is really in use, marked on the bar. */
  measured?: Partial<Record<MemoryUse["name"], number>>;
};

/** Predicted memory by kind, against what there is. A small model is also shown on its own scale. */
export function MemoryBars({ memories, measured = {} }: MemoryBarsProps) {
  const [first, second] = memories;
  if (!first) return null;
  const share = first.total / first.limit;
  return (
    <div className="grid gap-3">
      {memories.map((memory) => (
        <Bar key={memory.name} name={`${memory.name} memory`} memory={memory} scale={memory.limit} mark={measured[memory.name]} note={`${bytesText(memory.total)} / ${bytesText(memory.limit)}`} />
      ))}
      {!second && share < 0.25 && <Bar name="By type" memory={first} scale={first.total} note={`${(share * 100).toFixed(share < 0.1 ? 1 : 0)} % of the memory is needed`} />}
      {second ? <KindTable memories={memories} /> : <KindList memory={first} />}
    </div>
  );
}

type BarProps = { name: string; memory: MemoryUse; scale: number; note: string; mark?: number };

function Bar({ name, memory, scale, note, mark }: BarProps) {
  return (
    <div>
      <div className="mb-1.5 flex justify-between gap-3 text-xs text-dim">
        {name}
        <span className="font-[520] text-text tabular-nums">{note}</span>
      </div>
      <div aria-hidden className="relative">
        <div className="flex h-5 overflow-hidden rounded-md bg-white/6">
          {MEMORY_KINDS.map((kind) => (
            <div key={kind} className="h-full transition-[width] duration-200" style={{ width: `${(memory.kinds[kind] / scale) * 100}%`, background: LEGEND[kind].colour }} />
          ))}
        </div>
        {mark !== undefined && <div className="absolute -top-0.5 -bottom-0.5 w-0.5 -translate-x-1/2 rounded-full bg-white shadow-[0_0_0_1.5px_var(--color-card)]" style={{ left: `${Math.min(100, (mark / scale) * 100)}%` }} />}
      </div>
    </div>
  );
}

function Swatch({ kind }: { kind: MemoryKind }) {
  return <span aria-hidden className="inline-block h-[3px] w-2.5 rounded-full align-middle" style={{ background: LEGEND[kind].colour }} />;
}

function KindList({ memory }: { memory: MemoryUse }) {
  return (
    <ul className="flex flex-wrap gap-x-3.5 gap-y-1 text-xs text-dim">
      {MEMORY_KINDS.map((kind) => (
        <li key={kind} className="flex items-center gap-1.5 tabular-nums">
          <Swatch kind={kind} />
          {LEGEND[kind].name} {bytesText(memory.kinds[kind])}
        </li>
      ))}
    </ul>
  );
}

function KindTable({ memories }: { memories: readonly MemoryUse[] }) {
  return (
    <table className="w-full text-xs text-dim">
      <caption className="sr-only">Memory by type</caption>
      <thead>
        <tr>
          <th scope="col" className="text-left font-[450]">
            <span className="sr-only">Type</span>
          </th>
          {memories.map((memory) => (
            <th key={memory.name} scope="col" className="w-1/3 text-right font-[450]">
              {memory.name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {MEMORY_KINDS.map((kind) => (
          <tr key={kind}>
            <th scope="row" className="py-px text-left font-[450]">
              <Swatch kind={kind} /> <span className="ml-0.5">{LEGEND[kind].name}</span>
            </th>
            {memories.map((memory) => (
              <td key={memory.name} className="py-px text-right text-text">
                {memory.kinds[kind] > 0 ? bytesText(memory.kinds[kind]) : "–"}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

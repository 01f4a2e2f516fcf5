import { STEP_PARTS } from "@/curves/engine-names";
import type { CurveStore } from "@/curves/curve-store";
import { useRecent } from "@/curves/recent";
import { secondsText } from "@/text/duration";

const PARTS = [
  { key: "computing", name: "computing", colour: "#0694a2" },
  { key: "weights", name: "waiting for weights", colour: "#f2b84b" },
  { key: "optimizer", name: "waiting for the optimizer", colour: "#8b4ff0" },
] as const;

/** What the newest steps spent their time on. Nothing where the engine does not say: there is nothing to wait for. */
export function MeasuredStep({ store }: { store: CurveStore }) {
  const seconds = {
    computing: useRecent(store, STEP_PARTS.computing),
    weights: useRecent(store, STEP_PARTS.weights),
    optimizer: useRecent(store, STEP_PARTS.optimizer),
  };
  const total = PARTS.reduce((sum, { key }) => sum + (seconds[key] ?? 0), 0);
  if (total <= 0) return null;
  const share = (key: keyof typeof seconds) => ((seconds[key] ?? 0) / total) * 100;
  return (
    <div>
      <div className="mb-1.5 flex justify-between gap-3 text-xs text-dim">
        One step
        <span className="font-[520] text-text tabular-nums">{secondsText(total)}</span>
      </div>
      <div aria-hidden className="flex h-2.5 overflow-hidden rounded-full bg-white/6">
        {PARTS.map(({ key, colour }) => (
          <div key={key} className="h-full transition-[width] duration-200" style={{ width: `${share(key)}%`, background: colour }} />
        ))}
      </div>
      <ul className="mt-1.5 flex flex-wrap gap-x-3.5 gap-y-1 text-xs text-dim">
        {PARTS.map(({ key, name, colour }) => (
          <li key={key} className="flex items-center gap-1.5 tabular-nums">
            <span aria-hidden className="h-[3px] w-2.5 rounded-full" style={{ background: colour }} />
            {name} {Math.round(share(key))} %
          </li>
        ))}
      </ul>
    </div>
  );
}

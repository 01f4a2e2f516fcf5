import { MEMORY_KINDS, type MemoryKind, type Plan } from "@/api/job-summary";
import { bytesText } from "@/text/numbers";

const LOOKS: Record<MemoryKind, { name: string; colour: string }> = {
  weights: { name: "weights", colour: "#4a6cd0" },
  gradients: { name: "gradients", colour: "#2f4fa8" },
  optimizer: { name: "optimizer", colour: "#7f9ef0" },
  activations: { name: "activations", colour: "#8b4ff0" },
  overhead: { name: "torch itself", colour: "#0694a2" },
};

/** Predicted memory by kind, against what the device has. A small model is also shown on its own scale. */
export function MemoryBars({ plan }: { plan: Plan }) {
  const device = plan.device === "cpu" ? "Host memory" : "GPU memory";
  const share = plan.memoryTotal / plan.memoryLimit;
  return (
    <div className="grid gap-3">
      <Bar name={device} plan={plan} scale={plan.memoryLimit} note={`${bytesText(plan.memoryTotal)} / ${bytesText(plan.memoryLimit)}`} />
      {share < 0.25 && <Bar name="By kind" plan={plan} scale={plan.memoryTotal} note={`${(share * 100).toFixed(share < 0.1 ? 1 : 0)} % of it is needed`} />}
      <ul className="flex flex-wrap gap-x-3.5 gap-y-1 text-xs text-dim">
        {MEMORY_KINDS.map((kind) => (
          <li key={kind} className="flex items-center gap-1.5 tabular-nums">
            <span aria-hidden className="h-[3px] w-2.5 rounded-full" style={{ background: LOOKS[kind].colour }} />
            {LOOKS[kind].name} {bytesText(plan.memory[kind])}
          </li>
        ))}
      </ul>
    </div>
  );
}

function Bar({ name, plan, scale, note }: { name: string; plan: Plan; scale: number; note: string }) {
  return (
    <div>
      <div className="mb-1.5 flex justify-between gap-3 text-xs text-dim">
        {name}
        <span className="font-[520] text-text tabular-nums">{note}</span>
      </div>
      <div aria-hidden className="flex h-5 overflow-hidden rounded-md bg-white/6">
        {MEMORY_KINDS.map((kind) => (
          <div key={kind} className="h-full transition-[width] duration-200" style={{ width: `${(plan.memory[kind] / scale) * 100}%`, background: LOOKS[kind].colour }} />
        ))}
      </div>
    </div>
  );
}

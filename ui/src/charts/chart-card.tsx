import { Table2 } from "lucide-react";
import { type ReactNode, useCallback, useState, useSyncExternalStore } from "react";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { cn } from "@/components/class-names";
import type { LineSpec } from "@/curves/columns";
import { ownValue } from "@/curves/stack";
import { countText } from "@/text/numbers";
import { ChartCanvas, type ChartSpec } from "./chart-canvas";
import { ChartTable } from "./chart-table";
import { useChartsView } from "./charts-view";
import { hoveredParts } from "./describe";
import type { Hovered } from "./plot";

type ChartCardProps = { spec: ChartSpec; className?: string; children?: ReactNode };

/** A chart with its name, and the values under the cursor or, without one, the last. */
export function ChartCard({ spec, className, children }: ChartCardProps) {
  const [hovered, setHovered] = useState<Hovered | null>(null);
  const [asTable, setAsTable] = useState(false);
  const onHover = useCallback((next: Hovered | null) => setHovered((kept) => (kept === null && next === null ? kept : next)), []);

  return (
    <Card className={cn("flex flex-col", className)}>
      <div className="mb-2 flex items-start gap-x-2">
        <div className="flex min-w-0 grow flex-wrap items-center gap-x-3.5 gap-y-1">
          <h2 className="mr-auto text-[13px] font-[590]">{spec.title}</h2>
          {hovered && <span className="text-xs text-dim tabular-nums">{positionText(spec, hovered.x)}</span>}
          <div role="group" aria-label={`Values of ${spec.title}`} className="flex flex-wrap items-center gap-x-3.5 gap-y-1">
            {spec.lines.map((line) => (
              <Value key={line.name} line={line} spec={spec} hovered={hovered} named={spec.lines.length > 1} />
            ))}
          </div>
          {children}
        </div>
        <Button variant="ghost" size="icon" className="-my-1 -mr-1.5 size-7 max-sm:-my-2 max-sm:size-9" aria-label={`Show ${spec.title} as a table`} title="Show as a table" onClick={() => setAsTable(true)}>
          <Table2 aria-hidden />
        </Button>
      </div>
      <ChartCanvas spec={spec} onHover={onHover} />
      {asTable && <ChartTable spec={spec} onClose={() => setAsTable(false)} />}
    </Card>
  );
}

type ValueProps = { line: LineSpec; spec: ChartSpec; hovered: Hovered | null; named: boolean };

function Value({ line, spec, hovered, named }: ValueProps) {
  const { store } = useChartsView();
  const last = useSyncExternalStore(store.subscribe, () => store.curve(line.name)?.last?.value);
  if (last === undefined) return null;
  const value = hovered && ownValue(line, spec.lines, hovered.values);
  return (
    <span className="flex flex-wrap items-center gap-x-1.5 text-xs text-dim tabular-nums">
      <span aria-hidden className="h-[3px] w-2.5 rounded-full" style={{ background: line.colour }} />
      {named && `${line.label} `}
      {!hovered && <span className="text-text">{spec.format(last)}</span>}
      {hovered && !value && "–"}
      {value &&
        hoveredParts(value, spec.format).map(({ name, text }) => (
          <span key={name}>
            {name} <span className="text-text">{text}</span>
          </span>
        ))}
    </span>
  );
}

function positionText({ axis, over }: ChartSpec, x: number): string {
  if (over === "tokens") return `${countText(x)} tokens`;
  return axis === "step" ? `step ${countText(x)}` : new Date(x * 1000).toLocaleTimeString("en-GB");
}

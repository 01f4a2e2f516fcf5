import { useMemo } from "react";
import type { Outcome } from "@/api/task-types";
import { Card, CardHeader } from "@/components/card";
import { figuresOf } from "./compared";
import { SideTable } from "./side-table";

type FiguresTableProps = { labels: string[]; outcomes: Outcome[] };

export function FiguresTable({ labels, outcomes }: FiguresTableProps) {
  const figures = useMemo(() => figuresOf(outcomes), [outcomes]);
  if (figures.length === 0) return null;
  return (
    <Card>
      <CardHeader title="Figures" note="the best is marked where one stands out" />
      <SideTable label="Figures of the runs" labels={labels} rows={figures.map(({ name, values, text, best }) => ({ name, marked: best, cells: values.map((value) => (value === null ? "–" : text(value))) }))} />
    </Card>
  );
}

import { cn } from "@/components/class-names";

const MARKS = [50, 80] as const;

/** How much of a budget is spent, with marks where one is warned. */
export function BudgetBar({ label, spent, limit }: { label: string; spent: number; limit: number }) {
  const percent = limit > 0 ? Math.min(100, (spent / limit) * 100) : 100;
  return (
    <div role="progressbar" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(percent)} className="relative h-2 rounded-full bg-white/9">
      <div
        className={cn("h-full rounded-full transition-[width] duration-500 ease-out", percent >= 100 ? "bg-danger" : percent >= 80 ? "bg-warning" : "bg-teal")}
        style={{ width: `${percent}%` }}
      />
      {MARKS.map((mark) => (
        <span key={mark} aria-hidden className="absolute inset-y-0 w-px bg-white/45" style={{ left: `${mark}%` }} />
      ))}
    </div>
  );
}

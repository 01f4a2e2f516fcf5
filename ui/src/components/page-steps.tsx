import { Button } from "./button";

type PageStepsProps = { page: number; pageSize: number; total: number; onTurn: (page: number) => void };

/** "21–40 of 65", with steps to either side. Absent when everything fits on one page. */
export function PageSteps({ page, pageSize, total, onTurn }: PageStepsProps) {
  if (total <= pageSize) return null;
  const first = (page - 1) * pageSize + 1;
  const last = Math.min(page * pageSize, total);
  return (
    <nav aria-label="Pages" className="mt-3 flex items-center justify-end gap-2 text-sm text-dim">
      <span aria-live="polite" className="mr-2">
        {first}–{last} of {total.toLocaleString("en-GB")}
      </span>
      <Button size="small" disabled={page <= 1} onClick={() => onTurn(page - 1)}>
        Previous
      </Button>
      <Button size="small" disabled={last >= total} onClick={() => onTurn(page + 1)}>
        Next
      </Button>
    </nav>
  );
}

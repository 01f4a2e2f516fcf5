import { useMemo, useState } from "react";
import { MOST } from "@/api/compare";
import type { Selection } from "@/pages/jobs/job-table";

/** Runs picked out of a table, in the order in which they were picked. */
export function useSelection(initial: readonly string[] = []): Selection & { clear: () => void } {
  const [chosen, setChosen] = useState<readonly string[]>(initial);
  return useMemo(
    () => ({
      chosen,
      full: chosen.length >= MOST,
      toggle: (id) => setChosen((kept) => (kept.includes(id) ? kept.filter((other) => other !== id) : [...kept, id].slice(0, MOST))),
      clear: () => setChosen([]),
    }),
    [chosen],
  );
}

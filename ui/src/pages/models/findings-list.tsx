import { CircleX, Info, TriangleAlert } from "lucide-react";
import type { Finding } from "@/api/types";

type Severity = Finding["severity"];

const SEVERITIES: Record<Severity, { icon: typeof Info; colour: string; word: string }> = {
  error: { icon: CircleX, colour: "text-danger-soft", word: "Problem" },
  warning: { icon: TriangleAlert, colour: "text-warning", word: "Warning" },
  note: { icon: Info, colour: "text-dim", word: "Note" },
};

const WORST_FIRST: Severity[] = ["error", "warning", "note"];

/** What a check found, the worst first. */
export function FindingsList({ findings }: { findings: readonly Finding[] }) {
  const sorted = findings.toSorted((a, b) => WORST_FIRST.indexOf(a.severity) - WORST_FIRST.indexOf(b.severity));
  return (
    <ul className="grid gap-1.5 text-sm">
      {sorted.map(({ code, severity, sentence }) => {
        const { icon: Icon, colour, word } = SEVERITIES[severity];
        return (
          <li key={`${code} ${sentence}`} className="flex gap-2">
            <Icon aria-hidden className={`mt-0.5 size-4 shrink-0 ${colour}`} />
            <span className="min-w-0 wrap-anywhere">
              <span className="sr-only">{word}: </span>
              {sentence}
            </span>
          </li>
        );
      })}
    </ul>
  );
}

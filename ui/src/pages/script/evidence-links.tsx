import type { Confidence, Evidence } from "@/api/scripts";
import { cn } from "@/components/class-names";

export type ShowLine = (evidence: Evidence) => void;

const SHOWN = 4;
const TONES: Record<Confidence, string> = { stated: "text-success-soft", derived: "text-teal-soft", assumed: "text-warning" };
const MEANINGS: Record<Confidence, string> = {
  stated: "the script says so",
  derived: "follows from what the script says",
  assumed: "a rule of thumb: the script does not say",
};

/** How sure a value is, in one word. */
export function Sureness({ confidence }: { confidence: Confidence }) {
  return (
    <span title={MEANINGS[confidence]} className={cn("font-[540]", TONES[confidence])}>
      {confidence}
    </span>
  );
}

/** The lines that a value rests on; each shows itself in the editor. */
export function EvidenceLinks({ of, evidence, onShow }: { of: string; evidence: readonly Evidence[]; onShow: ShowLine }) {
  const seen = new Set<string>();
  const places = evidence.filter((each) => !seen.has(placeOf(each)) && seen.add(placeOf(each)));
  if (places.length === 0) return null;
  return (
    <span className="inline-flex flex-wrap gap-x-2">
      {places.slice(0, SHOWN).map((each) =>
        each.line === 0 ? (
          <span key={placeOf(each)} title={each.text}>
            command line
          </span>
        ) : (
          <button
            key={placeOf(each)}
            type="button"
            title={each.text}
            aria-label={`${of}: show ${placeOf(each)}`}
            onClick={() => onShow(each)}
            className="text-violet-soft underline-offset-3 hover:underline max-sm:py-1"
          >
            {placeOf(each)}
          </button>
        ),
      )}
    </span>
  );
}

const placeOf = ({ line, file }: Evidence) => (line === 0 ? "command line" : file ? `${file}, line ${line}` : `line ${line}`);

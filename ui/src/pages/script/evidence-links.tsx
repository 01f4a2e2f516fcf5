import type { Confidence, Evidence } from "@/api/scripts";
import { cn } from "@/components/class-names";

export type ShowLine = (evidence: Evidence) => void;

const VISIBLE_LOCATIONS = 4;
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
  const locations = evidence.filter((each) => !seen.has(locationText(each)) && seen.add(locationText(each)));
  if (locations.length === 0) return null;
  return (
    <span className="inline-flex flex-wrap gap-x-2">
      {locations.slice(0, VISIBLE_LOCATIONS).map((each) =>
        each.line === 0 ? (
          <span key={locationText(each)} title={each.text}>
            command line
          </span>
        ) : (
          <button
            key={locationText(each)}
            type="button"
            title={each.text}
            aria-label={`${of}: show ${locationText(each)}`}
            onClick={() => onShow(each)}
            className="text-violet-soft underline-offset-3 hover:underline max-sm:py-1"
          >
            {locationText(each)}
          </button>
        ),
      )}
    </span>
  );
}

const locationText = ({ line, file }: Evidence) => (line === 0 ? "command line" : file ? `${file}, line ${line}` : `line ${line}`);

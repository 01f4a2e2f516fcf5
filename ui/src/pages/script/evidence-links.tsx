import type { Confidence, Evidence } from "@/api/scripts";
import { Badge } from "@/components/badge";

export type ShowLine = (evidence: Evidence) => void;

const SHOWN = 4;
const TONES = { stated: "good", derived: "teal", assumed: "neutral" } as const;
const MEANINGS: Record<Confidence, string> = {
  stated: "the script says so",
  derived: "follows from what the script says",
  assumed: "a rule of thumb: the script does not say",
};

export function SureBadge({ confidence }: { confidence: Confidence }) {
  return (
    <Badge tone={TONES[confidence]} title={MEANINGS[confidence]}>
      {confidence}
    </Badge>
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

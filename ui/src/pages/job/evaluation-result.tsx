import { type Answered, type Evaluation, type Measured, type Score, readEvaluation } from "@/api/task-results";
import type { Job } from "@/api/types";
import { Notice } from "@/components/notice";
import { countText, metricText } from "@/text/numbers";
import { wordDiff } from "@/text/word-diff";

/** What an evaluation found: perplexity before and after as bars, and answers side by side. */
export function EvaluationResult({ task }: { task: Job }) {
  const evaluation = readEvaluation(task.result);
  if (evaluation === null) return null;
  return (
    <div className="grid gap-5">
      {evaluation.tuned && <Perplexity evaluation={evaluation} />}
      {evaluation.scores.length > 0 && <Scores scores={evaluation.scores} />}
      {evaluation.prompts.length > 0 && (
        <section aria-label="Answers before and after">
          <h3 className="mb-2 text-xs text-dim">
            Answers, before and after. <mark className="rounded-sm bg-success/20 px-1 text-success-soft">Words that are new</mark> are marked.
          </h3>
          <ol className="grid gap-3">
            {evaluation.prompts.map((answered, index) => (
              // Two prompts may read the same.
              // oxlint-disable-next-line react/no-array-index-key
              <AnswerPair key={index} answered={answered} />
            ))}
          </ol>
        </section>
      )}
      {evaluation.notes.map((note) => (
        <Notice key={note} tone="attention">
          {note}
        </Notice>
      ))}
    </div>
  );
}

function Perplexity({ evaluation: { base, tuned } }: { evaluation: Evaluation }) {
  const [before, after] = [base?.perplexity ?? null, tuned?.perplexity ?? null];
  // Perplexities are ratios: on a plain scale the better one could not be seen.
  const most = Math.log(Math.max(before ?? 1, after ?? 1, 1.0001));
  return (
    <section aria-label="Perplexity before and after">
      <div className="mb-2 flex flex-wrap items-baseline justify-between gap-x-4">
        <h3 className="text-xs text-dim">Perplexity on held-out data; lower is better</h3>
        {before !== null && after !== null && <p className="text-sm font-[560]">{changeText(before, after)}</p>}
      </div>
      <div className="grid gap-2">
        {base && <Bar name="Base" measured={base} most={most} colour="bg-[#4a6cd0]" />}
        {tuned && <Bar name="Tuned" measured={tuned} most={most} colour="bg-violet-bright" />}
      </div>
    </section>
  );
}

const changeText = (before: number, after: number) => {
  // "100 % lower" would be wrong, and "99.7 % lower" says little.
  if (before / after >= 2) return `${countText(before / after)} times lower after the tuning`;
  const percent = Math.round((after / before - 1) * 100);
  return percent === 0 ? "about the same" : percent < 0 ? `${-percent} % lower after the tuning` : `${percent} % higher after the tuning`;
};

function Bar({ name, measured, most, colour }: { name: string; measured: Measured; most: number; colour: string }) {
  const { perplexity, loss, tokens } = measured;
  const width = perplexity === null ? 0 : Math.max(2, (Math.log(Math.max(perplexity, 1)) / most) * 100);
  return (
    <div className="grid grid-cols-[3.5rem_minmax(0,1fr)_auto] items-center gap-3 text-sm">
      <span className="text-dim">{name}</span>
      <div aria-hidden className="h-5 overflow-hidden rounded-md bg-white/6">
        <div className={`h-full rounded-md ${colour}`} style={{ width: `${width}%` }} />
      </div>
      <span className="min-w-30 text-right tabular-nums" title={tokens === null ? undefined : `over ${countText(tokens)} tokens`}>
        <b className="font-[600]">{perplexity === null ? "–" : metricText(perplexity)}</b>
        {loss !== null && <span className="ml-2 text-xs text-dim">loss {metricText(loss)}</span>}
      </span>
    </div>
  );
}

function Scores({ scores }: { scores: Score[] }) {
  return (
    <table className="w-full text-sm">
      <caption className="mb-1.5 text-left text-xs text-dim">Benchmarks of lm-eval</caption>
      <thead>
        <tr className="text-xs text-faint">
          <th scope="col" className="pb-1 text-left font-[450]">
            Task
          </th>
          <th scope="col" className="pb-1 text-right font-[450]">
            Base
          </th>
          <th scope="col" className="pb-1 text-right font-[450]">
            Tuned
          </th>
        </tr>
      </thead>
      <tbody>
        {scores.map(({ name, base, tuned }) => (
          <tr key={name} className="border-t border-line">
            <th scope="row" className="py-1 text-left font-[450] break-words text-dim">
              {name}
            </th>
            <td className="py-1 pl-3 text-right">{base === null ? "–" : metricText(base)}</td>
            <td className="py-1 pl-3 text-right font-[560]">{tuned === null ? "–" : metricText(tuned)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function AnswerPair({ answered: { prompt, base, tuned } }: { answered: Answered }) {
  return (
    <li className="rounded-card border border-line px-3.5 py-2.5">
      <p className="mb-2 font-[540] break-words whitespace-pre-wrap">{prompt}</p>
      <div className={base === null ? "grid gap-3" : "grid gap-3 md:grid-cols-2"}>
        {base !== null && <AnswerText name="Base" text={base} />}
        {tuned !== null && <AnswerText name="Tuned" text={tuned} before={base} />}
      </div>
    </li>
  );
}

function AnswerText({ name, text, before }: { name: string; text: string; before?: string | null }) {
  return (
    <div className="min-w-0">
      <h4 className={before === undefined ? "text-2xs text-faint" : "text-2xs text-violet-soft"}>{name}</h4>
      <p className="text-sm break-words whitespace-pre-wrap">
        {text === "" ? <span className="text-dim">nothing</span> : before ? <Marked before={before} after={text} /> : text}
      </p>
    </div>
  );
}

/** The second text, with what the first did not have marked. */
export function Marked({ before, after }: { before: string; after: string }) {
  return wordDiff(before, after).map((piece, index) =>
    piece.kind === "removed" ? null : piece.kind === "added" ? (
      // oxlint-disable-next-line react/no-array-index-key
      <mark key={index} className="rounded-sm bg-success/20 text-success-soft">
        {piece.text}
      </mark>
    ) : (
      piece.text
    ),
  );
}

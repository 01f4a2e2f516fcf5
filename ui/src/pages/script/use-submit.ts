import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { type ScriptQuote, quoteScript, startScript } from "@/api/ml-jobs";
import { ApiProblem, sentenceOf } from "@/api/problem";
import { toast } from "@/components/toasts";
import { type OfferSelection, missingConnection } from "@/pages/offers/use-offer-selection";
import { forgetDraft } from "./saved-draft";
import { type Draft, type DraftMistakes, jobBody, mistakesIn } from "./script-draft";

/** Everything that was wrong with a request, in sentences. */
function sentencesOf(error: unknown): string[] {
  if (!(error instanceof ApiProblem) || error.fieldErrors.length === 0) return [sentenceOf(error)];
  return error.fieldErrors.map(({ field, message }) => (field === "" || field === "code" ? message : `${field.replaceAll("_", " ")}: ${message}`));
}

export function useSubmit(draft: Draft, selection: OfferSelection) {
  const navigate = useNavigate();
  const [pending, setPending] = useState(false);
  const [tried, setTried] = useState(false);
  const [failures, setFailures] = useState<string[]>([]);
  const [quote, setQuote] = useState<ScriptQuote | null>(null);
  const mistakes = mistakesIn(draft);
  const body = () => jobBody(draft, selection.choice);

  async function start() {
    const { job_id: jobId } = await startScript(body());
    forgetDraft();
    toast("The job is queued.");
    await navigate({ to: "/jobs/$jobId", params: { jobId } });
  }

  /** Here a job starts at once. What costs money says how much first. */
  async function submit() {
    setTried(true);
    if (Object.keys(mistakes).length > 0) return setFailures([]);
    const missing = missingConnection(selection);
    if (missing) return setFailures([missing]);
    setPending(true);
    setFailures([]);
    try {
      if (selection.choice === null) await start();
      else setQuote(await quoteScript(body()));
    } catch (error) {
      setFailures(sentencesOf(error));
    } finally {
      setPending(false);
    }
  }

  return { submit, start, pending, failures, quote, dismiss: () => setQuote(null), mistakes: tried ? mistakes : withoutFiles(mistakes) };
}

/** That nothing is there yet is no mistake before somebody wants to start. */
const withoutFiles = (mistakes: DraftMistakes): DraftMistakes => ({ ...mistakes, files: undefined });

import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { type Found, type Requirements, requirementsQuery } from "@/api/scripts";
import { parseNumber } from "@/forms/number-rules";
import { type Draft, type Overruled, scriptRequest } from "./script-draft";

const PAUSE = 500;

/** What the script needs, once the typing pauses. */
export function useNeeds(draft: Pick<Draft, "files" | "entry" | "arguments">) {
  const wanted = JSON.stringify(scriptRequest(draft));
  const [settled, setSettled] = useState(wanted);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(wanted), PAUSE);
    return () => clearTimeout(timer);
  }, [wanted]);
  const request = JSON.parse(settled) as ReturnType<typeof scriptRequest>;
  const answer = useQuery(requirementsQuery(request));
  // What an earlier text needed says nothing about one that cannot be read.
  const found = request !== null && !answer.isError ? (answer.data ?? null) : null;
  return { answer, found, empty: request === null, behind: settled !== wanted || answer.isPlaceholderData };
}

export type Needs = ReturnType<typeof useNeeds>;

const said = <Value>(value: Value): Found<Value> => ({ value, confidence: "stated", evidence: [], reason: "You said so." });

/** What was found, with what a person knows better in its place. */
export function overrule(found: Requirements, { gpus, memory, hours }: Overruled): Requirements {
  const [count, gigabytes, duration] = [gpus, memory, hours].map(parseNumber);
  return {
    ...found,
    gpus: count && Number.isInteger(count) && count > 0 ? said(count) : found.gpus,
    gpuMemoryGb: gigabytes && gigabytes > 0 ? said(gigabytes) : found.gpuMemoryGb,
    durationHours: duration && duration > 0 ? said(duration) : found.durationHours,
  };
}

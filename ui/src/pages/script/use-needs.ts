import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { type Detected, type Requirements, requirementsQuery } from "@/api/scripts";
import { parseNumber } from "@/forms/number-rules";
import { type Draft, type Overrides, scriptRequest } from "./script-draft";

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
  const requirements = request !== null && !answer.isError ? (answer.data ?? null) : null;
  return { answer, requirements, empty: request === null, behind: settled !== wanted || answer.isPlaceholderData };
}

export type Needs = ReturnType<typeof useNeeds>;

const stated = <Value>(value: Value): Detected<Value> => ({ value, confidence: "stated", evidence: [], reason: "You said so." });

/** What was found, with what a person knows better in its place. */
export function withOverrides(requirements: Requirements, { gpus, memory, hours }: Overrides): Requirements {
  const [count, gigabytes, duration] = [gpus, memory, hours].map(parseNumber);
  return {
    ...requirements,
    gpus: count && Number.isInteger(count) && count > 0 ? stated(count) : requirements.gpus,
    gpuMemoryGb: gigabytes && gigabytes > 0 ? stated(gigabytes) : requirements.gpuMemoryGb,
    durationHours: duration && duration > 0 ? stated(duration) : requirements.durationHours,
  };
}

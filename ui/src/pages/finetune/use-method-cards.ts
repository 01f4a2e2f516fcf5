import { useQueries } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { planQuery } from "@/api/jobs";
import type { PlanRequest } from "@/api/types";
import { METHODS, NAMES, WHAT, costText, withMethod } from "./method-costs";

const PAUSE = 600;

/** The methods as cards, each with what it would cost once the typing pauses. */
export function useMethodCards(request: PlanRequest, complete: boolean) {
  const wanted = JSON.stringify(request);
  const [settled, setSettled] = useState(wanted);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(wanted), PAUSE);
    return () => clearTimeout(timer);
  }, [wanted]);
  const answers = useQueries({
    queries: METHODS.map((method) => ({ ...planQuery(withMethod(JSON.parse(settled) as PlanRequest, method)), enabled: complete })),
  });
  return METHODS.map((method, index) => {
    const cost = complete ? costText(answers[index]?.data) : null;
    return [method, NAMES[method], cost ? `${WHAT[method]}, ${cost}` : WHAT[method]] as const;
  });
}

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { planQuery } from "@/api/jobs";
import type { PlanRequest } from "@/api/types";

const PAUSE = 400;

/** The plan for what is in the form, once the typing pauses. */
export function usePlan(request: PlanRequest, complete: boolean) {
  const wanted = JSON.stringify(request);
  const [settled, setSettled] = useState(wanted);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(wanted), PAUSE);
    return () => clearTimeout(timer);
  }, [wanted]);
  const answer = useQuery({ ...planQuery(JSON.parse(settled) as PlanRequest), placeholderData: keepPreviousData, enabled: complete });
  return { answer, behind: settled !== wanted || answer.isPlaceholderData };
}

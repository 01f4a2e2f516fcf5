/** What a person's own script needs, and where it could run. Nothing here starts anything. */
import { keepPreviousData, queryOptions, skipToken } from "@tanstack/react-query";
import { answerOf, api } from "./client";
import type { components } from "./schema";

type Schemas = components["schemas"];

export type Requirements = Schemas["RequirementsOut"];
export type Evidence = Schemas["EvidenceOut"];
export type Confidence = Requirements["gpus"]["confidence"];
export type Detected<Value> = { value: Value; confidence: Confidence; evidence: Evidence[]; reason: string | null };
export type ScriptRequest = Schemas["ScriptIn"];
export type Constraints = Partial<Schemas["ConstraintsIn"]>;
export type Needs = Schemas["NeedIn"];
export type Offer = Schemas["OfferOut"];
export type Offers = Schemas["OffersOut"];
export type Span = Schemas["SpanOut"];

export const requirementsQuery = (body: ScriptRequest | null) =>
  queryOptions({
    queryKey: ["requirements", body],
    queryFn: body === null ? skipToken : ({ signal }) => answerOf(api.POST("/api/requirements", { body, signal })),
    placeholderData: keepPreviousData,
    staleTime: 5 * 60_000,
  });

export type OffersRequest = { requirements: Requirements; constraints?: Constraints } | { needs: Needs; constraints?: Constraints };

/** Nothing is asked for null: there is nothing to price yet. */
export const offersQuery = (request: OffersRequest | null) =>
  queryOptions({
    queryKey: ["offers", request],
    queryFn: request === null ? skipToken : ({ signal }) => answerOf(api.POST("/api/offers", { body: offersBody(request), signal })),
    placeholderData: keepPreviousData,
    staleTime: 60_000,
  });

function offersBody(request: OffersRequest): Schemas["AskForOffers"] {
  const constraints = (request.constraints ?? {}) as Schemas["ConstraintsIn"];
  if ("needs" in request) return { needs: request.needs, constraints };
  return { requirements: snakeKeys(request.requirements) as Schemas["ScriptRequirements"], constraints };
}

const snake = (name: string) => name.replaceAll(/[A-Z]/g, (character) => `_${character.toLowerCase()}`);

/** What was found goes back in the words of the library that found it. */
export function snakeKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(snakeKeys);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [snake(name), snakeKeys(item)]));
}

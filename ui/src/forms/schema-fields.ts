/** What the API's description says about a field, and what a form makes of it: kind, choices, default. */

/** What a run starts from; it decides some defaults. */
export type Situation = "adapters" | "pretrained" | "new_model";

type Choice = { readonly value: string; readonly label: string; readonly note?: string };

/** JSON schema, with what the server adds to it for forms. */
export type FieldSchema = {
  readonly type?: "integer" | "number" | "string" | "boolean" | "array" | "object";
  readonly title?: string;
  readonly description?: string;
  readonly minimum?: number;
  readonly exclusiveMinimum?: number;
  readonly maximum?: number;
  readonly exclusiveMaximum?: number;
  readonly maxLength?: number;
  readonly maxItems?: number;
  readonly pattern?: string;
  readonly enum?: readonly string[];
  readonly default?: unknown;
  /** Defaults that depend on the situation. */
  readonly defaults?: Readonly<Partial<Record<Situation, number>>>;
  readonly choices?: readonly Choice[];
  /** What no value means. */
  readonly empty?: string;
  /** A list of texts, one on each line. */
  readonly lines?: boolean;
  /** A word that is allowed instead of a number or of names. */
  readonly word?: string;
};

export type FieldKind = "whole" | "decimal" | "text" | "names" | "lines" | "choice" | "yes-no";

export type Option = readonly [value: string, text: string, note?: string];

export function kindOf({ type, enum: values, choices, lines }: FieldSchema): FieldKind {
  if (lines) return "lines";
  if (type === "boolean") return "yes-no";
  if (values || choices) return "choice";
  if (type === "integer") return "whole";
  if (type === "number") return "decimal";
  return type === "array" ? "names" : "text";
}

const YES_NO: readonly Option[] = [
  ["true", "Yes"],
  ["false", "No"],
];

/** The choices of a field in their order; undefined where there is nothing to choose from. */
export function optionsOf({ type, choices, enum: values }: FieldSchema): readonly Option[] | undefined {
  if (choices) return choices.map(({ value, label, note }) => [value, label, note] as const);
  return type === "boolean" ? YES_NO : values?.map((value) => [value, value] as const);
}

/** The default in the first of the situations that has one of its own. */
export function defaultOf({ defaults, default: usual }: FieldSchema, situations: readonly Situation[] = []): unknown {
  const special = situations.find((situation) => defaults?.[situation] !== undefined);
  return special ? defaults?.[special] : usual;
}

/**
 * A training config as a form and as JSON. The JSON is the truth: the form shows the fields it knows,
 * and changing one leaves everything else in the JSON as it was.
 */
import { CONFIG_FIELDS, type ConfigField, type ConfigValues, type Json, MODEL_FOLDER, applies, isObject, valueAt } from "./job-fields";
import { parseNumber } from "./number-rules";

/** A copy of the tree with one value set; undefined removes it, and branches that become empty with it. */
export function withValue(tree: Json, path: string, value: unknown): Json {
  const [name = "", ...rest] = path.split(".");
  const { [name]: old, ...others } = tree;
  if (rest.length === 0) return value === undefined ? others : { ...tree, [name]: value };
  const branch = withValue(isObject(old) ? old : {}, rest.join("."), value);
  return Object.keys(branch).length === 0 ? others : { ...tree, [name]: branch };
}

/** What the form shows for a config. */
export function valuesOf(config: Json): ConfigValues {
  const values = CONFIG_FIELDS.reduce<Json>((collected, field) => withValue(collected, field.path, formValue(config, field)), {});
  return values as ConfigValues;
}

function formValue(config: Json, field: ConfigField): string {
  // A folder stands in the preset's place, whatever preset is named beside it.
  if (field.path === "model.preset" && isText(valueAt(config, "model.path"))) return MODEL_FOLDER;
  const value = valueAt(config, field.path);
  if (value === undefined || value === null) return field.initial ?? "";
  return Array.isArray(value) ? value.join(", ") : String(value);
}

const isText = (value: unknown) => typeof value === "string" && value !== "";

/** The config with what the form says; an empty field leaves the choice to the server. */
export function configOf(values: ConfigValues, base: Json): Json {
  return CONFIG_FIELDS.reduce((config, field) => {
    const typed = applies(field, values) ? String(valueAt(values, field.path) ?? "").trim() : "";
    const before = valueAt(base, field.path);
    // What stands for saying nothing is also what the server takes.
    if (typed === "" || (before === undefined && typed === field.initial)) {
      return before === null ? config : withValue(config, field.path, undefined);
    }
    return withValue(config, field.path, parsedValue(field, typed));
  }, base);
}

function parsedValue(field: ConfigField, typed: string): unknown {
  switch (field.kind) {
    case "whole":
    case "decimal":
      // What is no number yet goes as it is: the server says what is wrong with it.
      return parseNumber(typed) ?? typed;
    case "yes-no":
      return typed === "true";
    case "names":
      return typed === field.fallback ? typed : typed.split(/[\s,]+/).filter(Boolean);
    default:
      return typed;
  }
}

const snake = (name: string) => name.replaceAll(/[A-Z]/g, (character) => `_${character.toLowerCase()}`);

/** The server takes camelCase too; the form knows one spelling. */
export function snakeKeys(tree: Json): Json {
  return Object.fromEntries(Object.entries(tree).map(([name, value]) => [snake(name), isObject(value) ? snakeKeys(value) : value]));
}

/** Parts that may be one word in a config, and the field that the word belongs to. */
const SHORT_FORMS: Record<string, string> = { memory: "mode", optimizer: "name" };

/** What is one word in a config becomes the field that the word belongs to. */
export const spelledOut = (config: Json): Json =>
  Object.fromEntries(
    Object.entries(config).map(([name, value]) => {
      const field = SHORT_FORMS[name];
      return [name, field && typeof value === "string" ? { [field]: value } : value];
    }),
  );

export type ParsedJson = { config: Json; mistake: null } | { config: null; mistake: string };

export function parseConfig(text: string): ParsedJson {
  if (text.trim() === "") return { config: {}, mistake: null };
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? { config: spelledOut(snakeKeys(value)), mistake: null } : { config: null, mistake: "A config is an object: { … }." };
  } catch (error) {
    return { config: null, mistake: `This is not valid JSON yet: ${error instanceof Error ? error.message : "unreadable"}.` };
  }
}

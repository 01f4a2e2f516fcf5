/** Every field of the form against the API's description: nothing that is said about a field may be typed by hand. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { CONFIG_FIELDS, type ConfigField, configDefault, type ConfigValues } from "./job-fields";
import { configOf, jobRules, startingValues, valuesOf, withValue } from "./job-form";

type Schema = {
  $ref?: string;
  anyOf?: Schema[];
  type?: string;
  const?: string;
  title?: string;
  description?: string;
  properties?: Record<string, Schema>;
  minimum?: number;
  exclusiveMinimum?: number;
  maximum?: number;
  exclusiveMaximum?: number;
  enum?: string[];
  default?: unknown;
  defaults?: Record<string, number>;
  choices?: { value: string; label: string; note?: string }[];
};

const { schemas } = (JSON.parse(readFileSync(new URL("../../openapi.json", import.meta.url), "utf8")) as { components: { schemas: Record<string, Schema> } }).components;

const model = (name: string): Schema => schemas[`${name}-Input`] ?? schemas[name] ?? {};
const resolved = (schema: Schema): Schema => (schema.$ref ? { ...model(schema.$ref.split("/").at(-1) ?? ""), ...schema } : schema);

/** A field as the server describes it; what it may be instead of no value. */
function described(path: string): Schema & { allowed: Schema[] } {
  const found = path.split(".").reduce((schema, name) => resolved(schema.properties?.[name] ?? {}), model("TrainConfig"));
  return { ...found, allowed: (found.anyOf ?? [found]).filter(({ type }) => type !== "null") };
}

const fields = CONFIG_FIELDS.map((field) => [field.path, field] as const);

const numeric = ({ allowed }: { allowed: Schema[] }) => allowed.find(({ type }) => type === "integer" || type === "number");

/** A form in which the field applies, with one value typed. */
function typedInto(field: ConfigField, text: string) {
  const folder = field.path === "model.path" || field.path === "model.random_weights";
  const base: Record<string, string> = { method: field.path.startsWith("lora.") ? "lora" : "full", ...(field.path === "model.rope_factor" && { "model.rope_scaling": "yarn" }), ...(folder && { "model.preset": "", "model.path": "/models/x" }) };
  const values = Object.entries({ ...base, [field.path]: text }).reduce((tree, [path, value]) => withValue(tree, path, value) as ConfigValues, valuesOf({}));
  return jobRules.safeParse({ ...startingValues("p1"), config: values }).error?.issues.map((issue) => issue.path.join(".")) ?? [];
}

/** Numbers around the limits of a field, and whether it takes them. */
function probes({ type, minimum, exclusiveMinimum: above, maximum }: Schema): [value: number, accepted: boolean][] {
  const beyond = type === "integer" ? 1 : 1e-6;
  const found: [number | undefined, number, boolean][] = [
    [minimum, 0, true],
    [minimum, -beyond, false],
    [above, beyond, true],
    [above, 0, false],
    [maximum, 0, true],
    [maximum, beyond, false],
  ];
  return found.flatMap(([limit, distance, accepted]): [number, boolean][] => (limit === undefined ? [] : [[limit + distance, accepted]]));
}

/** What a field offers to choose from, without what is the form's own. */
function offered({ options, before, after }: ConfigField) {
  return options?.filter(([value]) => value !== before?.[0] && value !== after?.[0]);
}

function choicesOf(schema: Schema) {
  if (schema.choices) return schema.choices.map(({ value, label, note }) => [value, label, note]);
  if (schema.type === "boolean") return [["true", "Yes"], ["false", "No"]];
  return schema.enum?.map((value) => [value, value]);
}

describe.each(fields)("the field %s", (path, field) => {
  const schema = described(path);
  const number = numeric(schema);

  it("has the title and the description of the config", () => {
    expect([field.label, field.help]).toEqual([schema.title, schema.description]);
  });

  it("shows the default of the config", () => {
    expect(configDefault(field, valuesOf({}))).toEqual(schema.defaults?.new_model ?? schema.default);
  });

  it("offers what the config accepts, and begins with its default", () => {
    expect(offered(field)).toEqual(choicesOf(schema));
    expect(field.initial).toBe(field.options && (field.before ? field.before[0] : String(schema.default)));
  });

  it("accepts numbers up to the limits of the config, and none beyond", () => {
    expect(field.kind === "whole" || field.kind === "decimal").toBe(number !== undefined);
    const tried = probes(number ?? {}).map(([value]) => [value, !typedInto(field, String(value)).includes(`config.${path}`)]);
    expect(tried).toEqual(probes(number ?? {}));
  });
});

const fieldAt = (path: string) => CONFIG_FIELDS.find((known) => known.path === path) as ConfigField;
const defaultsOf = (path: string) => described(path).defaults ?? {};

describe("defaults that depend on what is trained", () => {
  const folder = { model: { path: "/models/x" } };

  it.each([
    ["a new model", {}, "new_model", "new_model"],
    ["a folder with random weights", { model: { path: "/models/x", random_weights: true } }, "new_model", "new_model"],
    ["all weights of a folder", folder, "pretrained", "pretrained"],
    ["LoRA", { ...folder, method: "lora" }, "adapters", "pretrained"],
    ["QLoRA", { ...folder, method: "qlora" }, "adapters", "pretrained"],
  ])("are shown for %s", (_, config, rate, rest) => {
    const shown = (path: string) => configDefault(fieldAt(path), valuesOf(config));
    expect(shown("learning_rate")).toBe(defaultsOf("learning_rate")[rate]);
    expect(shown("epochs")).toBe(defaultsOf("epochs")[rest]);
    expect(shown("batch_size")).toBe(defaultsOf("batch_size")[rest]);
  });

  it("are those of trained weights where a model is taken by its id", () => {
    expect(configDefault(fieldAt("learning_rate"), valuesOf({ method: "lora" }), true)).toBe(defaultsOf("learning_rate").adapters);
    expect(configDefault(fieldAt("learning_rate"), valuesOf({}), true)).toBe(defaultsOf("learning_rate").pretrained);
    expect(configDefault(fieldAt("epochs"), valuesOf({}), true)).toBe(defaultsOf("epochs").pretrained);
  });
});

it.each(fields.filter(([, { kind }]) => kind === "whole" || kind === "decimal"))("sends %s alone when nothing else was typed", (path, field) => {
  const base: Record<string, string> = path.startsWith("lora.") ? { method: "lora" } : path === "model.rope_factor" ? { "model.rope_scaling": "yarn" } : {};
  const values = Object.entries({ ...base, [path]: "1" }).reduce((tree, [name, value]) => withValue(tree, name, value) as ConfigValues, valuesOf({}));
  const expected = Object.entries({ ...base, [field.path]: 1 }).reduce((tree, [name, value]) => withValue(tree, name, value), {});
  expect(configOf(values, {})).toEqual(expected);
});

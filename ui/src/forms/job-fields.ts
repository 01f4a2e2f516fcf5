/**
 * The fields of a training config that the form shows: their groups, their order, and when they apply. What is said about a
 * field (label, help, limits, choices, default) is the server's.
 */
import { TrainConfig } from "@/api/config-fields";
import { defaultOf, type FieldKind, type FieldSchema, kindOf, type Option, optionsOf, type Situation } from "./schema-fields";

export type Json = Record<string, unknown>;
export type ConfigValues = { [name: string]: string | ConfigValues };

/** Where a field lies in the config: "optimizer.weight_decay". */
export type ConfigPath = keyof typeof TrainConfig;

type Placed = {
  /** Whether it applies to the other values; a field that does not is neither shown nor sent. */
  when?: (values: ConfigValues) => boolean;
  /** What to say when it applies and is empty. */
  required?: string;
  /** Choices that are the form's own, before and after those of the config. */
  before?: Option;
  after?: Option;
};

export type ConfigField = Placed & {
  path: ConfigPath;
  schema: FieldSchema;
  kind: FieldKind;
  label: string;
  help?: string;
  options?: readonly Option[];
  /** The option that stands for saying nothing. */
  initial?: string;
};

export const CONFIG_SCHEMA: Record<ConfigPath, FieldSchema> = TrainConfig;

export const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value);

export function valueAt(tree: unknown, path: string): unknown {
  return path.split(".").reduce<unknown>((branch, name) => (isObject(branch) ? branch[name] : undefined), tree);
}

function field(path: ConfigPath, placed: Placed = {}): ConfigField {
  const schema = CONFIG_SCHEMA[path];
  const { before, after } = placed;
  const choices = optionsOf(schema);
  const options = choices && [...(before ? [before] : []), ...choices, ...(after ? [after] : [])];
  const initial = choices && (before ? before[0] : String(schema.default));
  return { ...placed, path, schema, kind: kindOf(schema), label: schema.title ?? path, help: schema.description, options, initial };
}

/** How the config calls one of the values of a choice. */
export function choiceText(path: ConfigPath, value: string): string {
  return CONFIG_SCHEMA[path].choices?.find((choice) => choice.value === value)?.label ?? value;
}

/** The choice instead of a preset: the model lies in a folder. */
export const MODEL_FOLDER = "";

/** The presets, with the one that is chosen if it is a size of its own: the server makes a shape for any. */
export function presetOptions(options: readonly Option[], chosen: string, own: { name: string; label: string } | null = null): readonly Option[] {
  const added = [...(own ? [[own.name, own.label] as const] : []), [chosen, `${chosen.toUpperCase()} parameters`] as const];
  return added.reduce<readonly Option[]>((all, option) => (all.some(([value]) => value === option[0]) ? all : [option, ...all]), options);
}

/** What is left to the server, where its choice depends on the model. */
const AUTOMATIC: Option = ["", "Automatic"];

export const ofFolder = (values: ConfigValues) => valueAt(values, "model.preset") === MODEL_FOLDER;
const ofPreset = (values: ConfigValues) => !ofFolder(values);
export const withAdapters = (values: ConfigValues) => valueAt(values, "method") !== "full";
const byEngine = (values: ConfigValues) => valueAt(values, "backend") === "engine";
const withTokenizerFile = (values: ConfigValues) => valueAt(values, "data.tokenizer.kind") === "file";

export const CONFIG_GROUPS = {
  data: [field("data.train_path")],
  model: [field("model.preset", { after: [MODEL_FOLDER, "Model folder…"] }), field("data.tokenizer.kind", { before: AUTOMATIC })],
  architecture: [field("model.architecture", { when: ofPreset })],
  folder: [
    field("model.path", { when: ofFolder, required: "Enter the path of the model folder." }),
    field("model.random_weights", { when: ofFolder }),
    field("data.tokenizer.path", { when: withTokenizerFile, required: "Enter the path of the tokenizer.json file." }),
  ],
  sizes: [
    field("model.hidden_size", { when: ofPreset }),
    field("model.layers", { when: ofPreset }),
    field("model.heads", { when: ofPreset }),
    field("model.kv_heads", { when: ofPreset }),
    field("model.ffn_size", { when: ofPreset }),
    field("model.context_length"),
  ],
  positions: [
    field("model.rope_scaling", { before: ["", "None"] }),
    field("model.rope_factor", { when: (values) => Boolean(valueAt(values, "model.rope_scaling")) }),
  ],
  method: [field("method")],
  adapters: [
    field("lora.rank", { when: withAdapters }),
    field("lora.alpha", { when: withAdapters }),
    field("lora.dropout", { when: withAdapters }),
    field("lora.targets", { when: withAdapters }),
  ],
  examples: [field("data.chat_template"), field("data.train_on"), field("data.packing"), field("data.too_long"), field("data.eval_fraction")],
  mix: [field("data.weight")],
  backend: [field("backend")],
  training: [field("epochs"), field("learning_rate"), field("batch_size"), field("max_steps")],
  optimizer: [
    field("optimizer.name", { when: byEngine }),
    field("optimizer.state", { when: (values) => byEngine(values) && !withAdapters(values) && valueAt(values, "optimizer.name") === "adamw" }),
    field("optimizer.weight_decay"),
    field("optimizer.clip_norm"),
    field("schedule.warmup_steps"),
    field("schedule.final_fraction"),
    field("accumulation"),
    field("seed"),
  ],
  engine: [
    field("memory.mode"),
    field("memory.gpu_budget_gb"),
    field("memory.host_budget_gb"),
    field("memory.gradients", { when: (values) => byEngine(values) && !withAdapters(values) }),
    field("precision"),
    field("compile"),
    field("deterministic", { when: byEngine }),
    field("processes", { when: byEngine }),
  ],
  saving: [field("checkpoint.every_steps"), field("checkpoint.every_epochs"), field("checkpoint.keep_last"), field("eval.every_steps"), field("eval.max_batches"), field("alerts.stop_on"), field("alerts.on")],
  samples: [field("eval.prompts"), field("eval.sample_tokens")],
} as const satisfies Record<string, readonly ConfigField[]>;

export type ConfigGroup = keyof typeof CONFIG_GROUPS;
export const CONFIG_FIELDS: readonly ConfigField[] = Object.values(CONFIG_GROUPS).flat();

export const applies = ({ when }: ConfigField, values: ConfigValues) => when?.(values) ?? true;
export const fieldsOf = (group: ConfigGroup, values: ConfigValues): ConfigField[] => CONFIG_GROUPS[group].filter((each) => applies(each, values));

/** Whether a model that was trained before is trained further. `byId`: the form takes it by its id, not by its folder. */
export const isPretrained = (values: ConfigValues, byId: boolean) => (byId || ofFolder(values)) && valueAt(values, "model.random_weights") !== "true";

/** What applies to the run, as the server sees it; the first counts that a field has a default for. */
function situationsOf(values: ConfigValues, byId: boolean): Situation[] {
  return [...(withAdapters(values) ? (["adapters"] as const) : []), isPretrained(values, byId) ? "pretrained" : "new_model"];
}

/** What the server would use where nothing is typed; undefined where only a plan can tell. */
export const configDefault = ({ schema }: ConfigField, values: ConfigValues, byId = false): unknown => defaultOf(schema, situationsOf(values, byId));

/** Whether a field says something that leaving it alone would not. */
export function isSet({ path, initial }: ConfigField, values: ConfigValues): boolean {
  const text = String(valueAt(values, path) ?? "").trim();
  return text !== "" && text !== initial;
}

/** What has to be filled in before there is anything to plan. */
export function missingIn(values: ConfigValues): { path: string; sentence: string }[] {
  return CONFIG_FIELDS.flatMap((each) => {
    const empty = String(valueAt(values, each.path) ?? "").trim() === "";
    return each.required && empty && applies(each, values) ? [{ path: each.path, sentence: each.required }] : [];
  });
}

/**
 * A training config as a form and as JSON. The JSON is the truth: the form shows the fields it knows,
 * and changing one leaves everything else in the JSON as it was.
 */
import { parseNumber } from "./number-rules";

export type Json = Record<string, unknown>;
export type ConfigValues = { [name: string]: string | ConfigValues };

type Limits = { least?: number; above?: number; most?: number };

export type ConfigField = {
  /** Where it lies in the config: "optimizer.weight_decay". */
  path: string;
  label: string;
  kind: "whole" | "decimal" | "text" | "choice";
  /** What the server takes when nothing is set. */
  fallback?: string;
  help?: string;
  limits?: Limits;
  options?: readonly (readonly [value: string, text: string])[];
};

const STEPS: Limits = { least: 1, most: 1_000_000_000 };

const PRESETS = [
  ["nano", "nano · 2 layers, 64 wide"],
  ["tiny", "tiny · 4 layers, 128 wide"],
  ["small", "small · 6 layers, 384 wide"],
  ["125m", "125M · 12 layers, 768 wide"],
  ["350m", "350M · 24 layers, 1,024 wide"],
  ["1b", "1B · 16 layers, 2,048 wide"],
  ["3b", "3B · 28 layers, 3,072 wide"],
  ["8b", "8B · 32 layers, 4,096 wide"],
  ["70b", "70B · 80 layers, 8,192 wide"],
] as const;

const TOKENIZERS = [
  ["bytes", "Bytes"],
  ["bpe", "BPE, trained on the data"],
] as const;

export const CONFIG_GROUPS = {
  model: [{ path: "model.preset", label: "Model", kind: "choice", options: PRESETS }],
  sizes: [
    { path: "model.hidden_size", label: "Hidden size", kind: "whole", limits: { least: 2, most: 65_536 } },
    { path: "model.layers", label: "Layers", kind: "whole", limits: { least: 1, most: 1_024 } },
    { path: "model.heads", label: "Attention heads", kind: "whole", limits: { least: 1, most: 1_024 } },
    { path: "model.kv_heads", label: "Key-value heads", kind: "whole", limits: { least: 1, most: 1_024 } },
    { path: "model.ffn_size", label: "Feed-forward size", kind: "whole", limits: { least: 1, most: 524_288 } },
    { path: "model.context_length", label: "Context length", kind: "whole", limits: { least: 1, most: 1_048_576 } },
  ],
  data: [
    { path: "data.train_path", label: "Training data", kind: "text" },
    { path: "data.tokenizer.kind", label: "Tokenizer", kind: "choice", options: TOKENIZERS },
  ],
  training: [
    { path: "epochs", label: "Epochs", kind: "whole", fallback: "10", limits: { least: 1, most: 100_000 } },
    { path: "learning_rate", label: "Learning rate", kind: "decimal", fallback: "0.001", limits: { above: 0, most: 10 } },
    { path: "batch_size", label: "Batch size", kind: "whole", fallback: "32", limits: { least: 1, most: 65_536 } },
    { path: "max_steps", label: "Most steps", kind: "whole", limits: STEPS, fallback: "all" },
  ],
  optimizer: [
    { path: "optimizer.weight_decay", label: "Weight decay", kind: "decimal", fallback: "0.1", limits: { least: 0 } },
    { path: "optimizer.clip_norm", label: "Clip gradients at norm", kind: "decimal", fallback: "1", limits: { least: 0 }, help: "0 does not clip." },
    { path: "schedule.warmup_steps", label: "Warm-up steps", kind: "whole", fallback: "3 % of all", limits: { least: 0, most: 1_000_000_000 } },
    { path: "schedule.final_fraction", label: "Final share of the rate", kind: "decimal", fallback: "0.1", limits: { least: 0, most: 1 } },
    { path: "accumulation", label: "Micro-batches per step", kind: "whole", fallback: "1", limits: { least: 1, most: 65_536 } },
    { path: "seed", label: "Seed", kind: "whole", fallback: "0", limits: { least: 0, most: Number.MAX_SAFE_INTEGER } },
  ],
  saving: [
    { path: "checkpoint.every_steps", label: "Save every … steps", kind: "whole", fallback: "only by epoch", limits: STEPS },
    { path: "checkpoint.every_epochs", label: "Save every … epochs", kind: "whole", fallback: "1", limits: { least: 0, most: 100_000 }, help: "0: not by epoch." },
    { path: "checkpoint.keep_last", label: "Keep the newest", kind: "whole", fallback: "2", limits: { least: 1, most: 1_000_000 }, help: "The best one is kept besides." },
    { path: "eval.every_steps", label: "Evaluate every … steps", kind: "whole", fallback: "end of epoch", limits: STEPS },
  ],
} as const satisfies Record<string, readonly ConfigField[]>;

export type ConfigGroup = keyof typeof CONFIG_GROUPS;
export const CONFIG_FIELDS: readonly ConfigField[] = Object.values(CONFIG_GROUPS).flat();

export const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value);

export function valueAt(tree: unknown, path: string): unknown {
  return path.split(".").reduce<unknown>((branch, name) => (isObject(branch) ? branch[name] : undefined), tree);
}

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
  let values: Json = {};
  for (const field of CONFIG_FIELDS) {
    const value = valueAt(config, field.path);
    const shown = value === undefined || value === null ? (field.options?.[0] && defaultChoice(field)) ?? "" : String(value);
    values = withValue(values, field.path, shown);
  }
  return values as ConfigValues;
}

const defaultChoice = (field: ConfigField) => (field.path === "model.preset" ? "tiny" : field.options?.[0]?.[0]);

/** The config with what the form says; an empty field leaves the choice to the server. */
export function configOf(values: ConfigValues, base: Json): Json {
  return CONFIG_FIELDS.reduce((config, field) => {
    const typed = String(valueAt(values, field.path) ?? "").trim();
    const before = valueAt(base, field.path);
    // What the list offers first is also what the server takes: saying nothing is the same.
    if (typed === "" || (field.kind === "choice" && before === undefined && typed === defaultChoice(field))) {
      return before === null ? config : withValue(config, field.path, undefined);
    }
    const isNumber = field.kind === "whole" || field.kind === "decimal";
    // What is no number yet goes as it is: the server says what is wrong with it.
    return withValue(config, field.path, isNumber ? (parseNumber(typed) ?? typed) : typed);
  }, base);
}

const snake = (name: string) => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** The server takes camelCase too; the form knows one spelling. */
export function snakeKeys(tree: Json): Json {
  return Object.fromEntries(Object.entries(tree).map(([name, value]) => [snake(name), isObject(value) ? snakeKeys(value) : value]));
}

export type ParsedJson = { config: Json; mistake: null } | { config: null; mistake: string };

export function parseConfig(text: string): ParsedJson {
  if (text.trim() === "") return { config: {}, mistake: null };
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? { config: snakeKeys(value), mistake: null } : { config: null, mistake: "A config is an object: { … }." };
  } catch (error) {
    return { config: null, mistake: `This is not valid JSON yet: ${error instanceof Error ? error.message : "unreadable"}.` };
  }
}

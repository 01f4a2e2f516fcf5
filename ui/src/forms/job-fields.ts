/** The fields of a training config that the form shows: their labels, their limits, and when they apply. */

export type Json = Record<string, unknown>;
export type ConfigValues = { [name: string]: string | ConfigValues };

type Limits = { least?: number; above?: number; most?: number };

export type ConfigField = {
  /** Where it lies in the config: "optimizer.weight_decay". */
  path: string;
  label: string;
  kind: "whole" | "decimal" | "text" | "names" | "choice" | "yes-no";
  /** What leaving it empty means, where the server’s default is no value. */
  fallback?: string;
  help?: string;
  limits?: Limits;
  /** Words that are allowed instead of a number. */
  word?: string;
  options?: readonly (readonly [value: string, text: string, note?: string])[];
  /** The option that stands for saying nothing. */
  initial?: string;
  /** Whether it applies to the other values; a field that does not is neither shown nor sent. */
  when?: (values: ConfigValues) => boolean;
  /** What to say when it applies and is empty. */
  required?: string;
};

export const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value);

export function valueAt(tree: unknown, path: string): unknown {
  return path.split(".").reduce<unknown>((branch, name) => (isObject(branch) ? branch[name] : undefined), tree);
}

const STEPS: Limits = { least: 1, most: 1_000_000_000 };

/** The choice instead of a preset: the model lies in a folder. */
export const MODEL_FOLDER = "";

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
  [MODEL_FOLDER, "A model folder…"],
] as const;

const TOKENIZERS = [
  ["", "Automatic"],
  ["bytes", "Bytes"],
  ["bpe", "BPE, trained on the data"],
  ["file", "A tokenizer.json…"],
] as const;

const METHODS = [
  ["full", "Full", "all weights are trained"],
  ["lora", "LoRA", "adapters on frozen weights"],
  ["qlora", "QLoRA", "adapters on 4-bit weights"],
] as const;

const MEMORY_MODES = [
  ["auto", "Automatic"],
  ["resident", "All on the GPU"],
  ["stream", "Layers in host memory"],
] as const;

const PRECISIONS = [
  ["auto", "Automatic"],
  ["bf16", "bf16"],
  ["fp16", "fp16, with loss scaling"],
  ["fp32", "fp32"],
] as const;

const COMPILING = [
  ["auto", "Automatic"],
  ["on", "Yes"],
  ["off", "No"],
] as const;

const TRAINED_PARTS = [
  ["completions", "Only the answers"],
  ["everything", "Prompts as well"],
] as const;

const PACKING = [
  ["true", "Yes"],
  ["false", "No"],
] as const;

const TOO_LONG = [
  ["cut", "Lose their end"],
  ["skip", "Are left out"],
] as const;

const BACKENDS = [
  ["engine", "GPU Bloom"],
  ["trl", "TRL"],
  ["unsloth", "TRL with Unsloth"],
] as const;

const FIRST_WEIGHTS = [
  ["false", "The folder’s weights"],
  ["true", "Random weights, in its shape"],
] as const;

export const ofFolder = (values: ConfigValues) => valueAt(values, "model.preset") === MODEL_FOLDER;
const ofPreset = (values: ConfigValues) => !ofFolder(values);
export const withAdapters = (values: ConfigValues) => valueAt(values, "method") !== "full";
const byEngine = (values: ConfigValues) => valueAt(values, "backend") === "engine";
const withTokenizerFile = (values: ConfigValues) => valueAt(values, "data.tokenizer.kind") === "file";

const size = (path: string, label: string, most: number, least = 1): ConfigField => ({ path, label, kind: "whole", limits: { least, most }, when: ofPreset });

export const CONFIG_GROUPS = {
  data: [{ path: "data.train_path", label: "Training data", kind: "text" }],
  model: [
    { path: "model.preset", label: "Model", kind: "choice", options: PRESETS, initial: "tiny" },
    { path: "data.tokenizer.kind", label: "Tokenizer", kind: "choice", options: TOKENIZERS },
  ],
  folder: [
    { path: "model.path", label: "Model folder", kind: "text", when: ofFolder, required: "Name the folder of the model." },
    { path: "model.random_weights", label: "Begin with", kind: "yes-no", options: FIRST_WEIGHTS, initial: "false", when: ofFolder },
    { path: "data.tokenizer.path", label: "Tokenizer file", kind: "text", when: withTokenizerFile, required: "Name the tokenizer.json." },
  ],
  sizes: [
    size("model.hidden_size", "Hidden size", 65_536, 2),
    size("model.layers", "Layers", 1_024),
    size("model.heads", "Attention heads", 1_024),
    size("model.kv_heads", "Key-value heads", 1_024),
    size("model.ffn_size", "Feed-forward size", 524_288),
    { path: "model.context_length", label: "Context length", kind: "whole", limits: { least: 1, most: 1_048_576 }, help: "Maximum sequence length." },
  ],
  method: [{ path: "method", label: "Method", kind: "choice", options: METHODS, initial: "full" }],
  adapters: [
    { path: "lora.rank", label: "Rank", kind: "whole", limits: { least: 1, most: 4_096 }, when: withAdapters, help: "A higher rank can learn more." },
    { path: "lora.alpha", label: "Alpha", kind: "decimal", limits: { above: 0 }, when: withAdapters, help: "Adapter output is scaled by alpha / rank." },
    { path: "lora.dropout", label: "Dropout", kind: "decimal", limits: { least: 0, most: 0.9 }, when: withAdapters, help: "Reduces overfitting on small datasets." },
    { path: "lora.targets", label: "Adapted layers", kind: "names", fallback: "all-linear", when: withAdapters, help: "Such as q_proj, v_proj. Empty: every linear one." },
  ],
  examples: [
    { path: "data.train_on", label: "Trained", kind: "choice", options: TRAINED_PARTS, initial: "completions", help: "Of chats and prompts with completions." },
    { path: "data.packing", label: "Several examples in a row", kind: "yes-no", options: PACKING, initial: "true", help: "Packs short examples into one row; attention does not cross them." },
    { path: "data.too_long", label: "Examples that are too long", kind: "choice", options: TOO_LONG, initial: "cut" },
    { path: "data.eval_fraction", label: "Share held out", kind: "decimal", limits: { least: 0, most: 0.5 }, help: "For evaluation. Equal examples stay on one side." },
  ],
  backend: [{ path: "backend", label: "Trained by", kind: "choice", options: BACKENDS, initial: "engine" }],
  training: [
    { path: "epochs", label: "Epochs", kind: "whole", limits: { least: 1, most: 100_000 } },
    { path: "learning_rate", label: "Learning rate", kind: "decimal", limits: { above: 0, most: 10 } },
    { path: "batch_size", label: "Batch size", kind: "whole", limits: { least: 1, most: 65_536 } },
    { path: "max_steps", label: "Most steps", kind: "whole", limits: STEPS, fallback: "all" },
  ],
  optimizer: [
    { path: "optimizer.weight_decay", label: "Weight decay", kind: "decimal", limits: { least: 0 } },
    { path: "optimizer.clip_norm", label: "Clip gradients at norm", kind: "decimal", limits: { least: 0 }, help: "0 does not clip." },
    { path: "schedule.warmup_steps", label: "Warm-up steps", kind: "whole", fallback: "3 % of all", limits: { least: 0, most: 1_000_000_000 } },
    { path: "schedule.final_fraction", label: "Final share of the rate", kind: "decimal", limits: { least: 0, most: 1 } },
    { path: "accumulation", label: "Micro-batches per step", kind: "whole", limits: { least: 1, most: 65_536 } },
    { path: "seed", label: "Seed", kind: "whole", limits: { least: 0, most: Number.MAX_SAFE_INTEGER } },
  ],
  engine: [
    { path: "memory.mode", label: "Where the model lives", kind: "choice", options: MEMORY_MODES, initial: "auto", help: "Automatic is the fastest that fits. The result is the same." },
    { path: "memory.gpu_budget_gb", label: "GPU memory, at most … GB", kind: "decimal", fallback: "what there is", limits: { above: 0 }, help: "Leaves the rest of the card to others." },
    { path: "memory.host_budget_gb", label: "Host memory, at most … GB", kind: "decimal", fallback: "what there is", limits: { above: 0 }, help: "Leaves the rest of the machine to others." },
    { path: "precision", label: "Precision", kind: "choice", options: PRECISIONS, initial: "auto", help: "Trainable weights also keep an fp32 master copy." },
    { path: "compile", label: "Compiled layers", kind: "choice", options: COMPILING, initial: "auto", help: "Faster after a minute; automatic for long runs on GPUs." },
    { path: "processes", label: "Processes", kind: "whole", word: "auto", fallback: "one for each GPU", limits: { least: 1, most: 1_024 }, when: byEngine, help: "They train together, a GPU each. auto: on a CPU, as many as are fastest." },
  ],
  saving: [
    { path: "checkpoint.every_steps", label: "Save every … steps", kind: "whole", fallback: "only by epoch", limits: STEPS },
    { path: "checkpoint.every_epochs", label: "Save every … epochs", kind: "whole", limits: { least: 0, most: 100_000 }, help: "0: not by epoch." },
    { path: "checkpoint.keep_last", label: "Keep the newest", kind: "whole", limits: { least: 1, most: 1_000_000 }, help: "The best one is kept besides." },
    { path: "eval.every_steps", label: "Evaluate every … steps", kind: "whole", fallback: "end of epoch", limits: STEPS },
  ],
} as const satisfies Record<string, readonly ConfigField[]>;

export type ConfigGroup = keyof typeof CONFIG_GROUPS;
export const CONFIG_FIELDS: readonly ConfigField[] = Object.values(CONFIG_GROUPS).flat();

export const applies = (field: ConfigField, values: ConfigValues) => field.when?.(values) ?? true;
export const fieldsOf = (group: ConfigGroup, values: ConfigValues): ConfigField[] => CONFIG_GROUPS[group].filter((field) => applies(field, values));

/** Whether a field says something that leaving it alone would not. */
export function isSet(field: ConfigField, values: ConfigValues): boolean {
  const text = String(valueAt(values, field.path) ?? "").trim();
  return text !== "" && text !== field.initial;
}

/** What has to be filled in before there is anything to plan. */
export function missingIn(values: ConfigValues): { path: string; sentence: string }[] {
  return CONFIG_FIELDS.flatMap((field) => {
    const empty = String(valueAt(values, field.path) ?? "").trim() === "";
    return field.required && empty && applies(field, values) ? [{ path: field.path, sentence: field.required }] : [];
  });
}

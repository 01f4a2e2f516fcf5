import { describe, expect, it } from "vitest";
import { ApiProblem } from "@/api/problem";
import { CONFIG_GROUPS, type ConfigValues, fieldsOf, isSet, missingIn, valueAt } from "./job-fields";
import { configOf, jobFailure, jobRules, likeJob, NEW_PROJECT, newJobBody, OTHER_GPU, parseConfig, startingValues, valuesOf, withValue } from "./job-form";
import { parseNumber } from "./rules";

const messagesFor = (change: object) =>
  jobRules.safeParse({ ...startingValues("p1"), ...change }).error?.issues.map((issue) => `${issue.path.join(".")}: ${issue.message}`) ?? [];

describe("a config as form and as JSON", () => {
  it("comes back unchanged, with what the form does not know", () => {
    const config = {
      epochs: 3,
      learning_rate: 1e-4,
      model: { preset: "small", rope_theta: 500_000 },
      data: { train_path: "books.txt", eval_fraction: 0.1 },
      optimizer: { beta2: 0.99, weight_decay: 0 },
      device: "cpu",
    };
    expect(configOf(valuesOf(config), config)).toEqual(config);
  });

  it("takes a changed field and leaves the rest alone", () => {
    const base = { epochs: 3, optimizer: { beta2: 0.99 } };
    const values = withValue(valuesOf(base), "optimizer.weight_decay", "0.01") as ReturnType<typeof valuesOf>;
    expect(configOf(values, base)).toEqual({ epochs: 3, optimizer: { beta2: 0.99, weight_decay: 0.01 } });
  });

  it("says nothing about a field that was emptied", () => {
    const base = { max_steps: 300, eval: { every_steps: 25 } };
    let values = valuesOf(base);
    values = withValue(values, "max_steps", "") as typeof values;
    values = withValue(values, "eval.every_steps", " ") as typeof values;
    expect(configOf(values, base)).toEqual({});
  });

  it("understands both spellings of names", () => {
    const { config } = parseConfig('{"learningRate": 0.01, "checkpoint": {"everySteps": 50}}');
    expect(config).toEqual({ learning_rate: 0.01, checkpoint: { every_steps: 50 } });
    expect(valueAt(valuesOf(config ?? {}), "checkpoint.every_steps")).toBe("50");
  });

  it("leaves names alone that are no fields", () => {
    const { config } = parseConfig('{"data": {"trainPath": "a", "columns": {"aB": "c"}}, "model": {"options": {"aB": 1}}, "ofMine": 1}');
    expect(config).toEqual({ data: { train_path: "a", columns: { aB: "c" } }, model: { options: { aB: 1 } }, ofMine: 1 });
  });

  it("says what is wrong with text that is no config", () => {
    expect(parseConfig("[1]").mistake).toContain("object");
    expect(parseConfig('{"epochs": ').mistake).toContain("Invalid JSON");
    expect(parseConfig("  ")).toEqual({ config: {}, mistake: null });
  });
});

const changed = (config: Record<string, unknown>, change: Record<string, string>) =>
  Object.entries(change).reduce((values, [path, value]) => withValue(values, path, value) as ConfigValues, valuesOf(config));

const adaptersFor = (targets: string) => configOf(changed({}, { method: "lora", "lora.targets": targets }), {}).lora;

describe("fields that depend on others", () => {
  it("come back unchanged where they apply", () => {
    const config = {
      method: "qlora",
      lora: { rank: 8, targets: ["q_proj", "v_proj"] },
      model: { path: "/data/llama", random_weights: true, context_length: 512 },
      memory: { mode: "stream", gpu_budget_gb: 12.5 },
      precision: "fp16",
      compile: "off",
    };
    expect(configOf(valuesOf(config), config)).toEqual(config);
  });

  it("are not sent where they do not apply, and are there again when they do", () => {
    const adapters = changed({}, { method: "lora", "lora.rank": "8" });
    expect(configOf(adapters, {})).toEqual({ method: "lora", lora: { rank: 8 } });
    const full = withValue(adapters, "method", "full") as ConfigValues;
    expect(configOf(full, {})).toEqual({});
    expect(configOf(withValue(full, "method", "qlora") as ConfigValues, {})).toEqual({ method: "qlora", lora: { rank: 8 } });
  });

  it("show adapters only for the methods that have them", () => {
    expect(fieldsOf("adapters", valuesOf({}))).toEqual([]);
    expect(fieldsOf("adapters", valuesOf({ method: "lora" }))).toHaveLength(CONFIG_GROUPS.adapters.length);
  });

  it("replace the preset by a folder, and its sizes with it", () => {
    const base = { model: { preset: "small", layers: 3, context_length: 64 } };
    const values = changed(base, { "model.preset": "", "model.path": "models/llama", "model.random_weights": "true" });
    expect(configOf(values, base)).toEqual({ model: { path: "models/llama", random_weights: true, context_length: 64 } });
    expect(fieldsOf("sizes", values).map((field) => field.path)).toEqual(["model.context_length"]);
    expect(valueAt(valuesOf({ model: { preset: "tiny", path: "/x" } }), "model.preset")).toBe("");
  });

  it("must be filled in where nothing can be planned without them", () => {
    expect(missingIn(valuesOf({}))).toEqual([]);
    expect(missingIn(changed({}, { "model.preset": "" })).map((one) => one.path)).toEqual(["model.path"]);
    const config = changed({}, { "model.preset": "", "data.tokenizer.kind": "file" });
    expect(messagesFor({ config })).toEqual(["config.model.path: Enter the path of the model folder.", "config.data.tokenizer.path: Enter the path of the tokenizer.json file."]);
  });

  it("have no mistakes where nobody sees them", () => {
    expect(messagesFor({ config: changed({}, { "lora.rank": "0" }) })).toEqual([]);
    expect(messagesFor({ config: changed({}, { method: "lora", "lora.rank": "0" }) })).toEqual(["config.lora.rank: The value must be at least 1."]);
  });

  it("count as changed only when they say something", () => {
    const values = changed({}, { "memory.gpu_budget_gb": "24" });
    expect(fieldsOf("engine", values).filter((field) => isSet(field, values)).map((field) => field.path)).toEqual(["memory.gpu_budget_gb"]);
  });

  it("are understood in their short form", () => {
    const { config } = parseConfig('{"memory": "stream", "optimizer": "AdamW"}');
    expect(config).toEqual({ memory: { mode: "stream" }, optimizer: { name: "AdamW" } });
    expect(configOf(valuesOf(config ?? {}), config ?? {})).toEqual(config);
  });

  it("take a number of processes or the word for the fastest, from this engine only", () => {
    const processes = (typed: string, change = {}) => configOf(changed({}, { processes: typed, ...change }), {}).processes;
    expect([processes("2"), processes("auto"), processes("2", { backend: "trl" })]).toEqual([2, "auto", undefined]);
    expect(messagesFor({ config: changed({}, { processes: "auto" }) })).toEqual([]);
    expect(messagesFor({ config: changed({}, { processes: "many" }) })).toEqual(["config.processes: Enter a whole number, or auto."]);
    expect(messagesFor({ config: changed({}, { processes: "0" }) })).toEqual(["config.processes: The value must be at least 1."]);
  });

  it("take names with commas or spaces, and the word for all", () => {
    expect(adaptersFor("q_proj,  v_proj k_proj")).toEqual({ targets: ["q_proj", "v_proj", "k_proj"] });
    expect(adaptersFor("all-linear")).toEqual({ targets: "all-linear" });
  });

  it("take one text per line, and keep line breaks inside a text", () => {
    const config = { eval: { prompts: ["Who are you?", "Write two lines:\nfirst"] } };
    const shown = valuesOf(config);
    expect(shown["eval"]).toMatchObject({ prompts: "Who are you?\nWrite two lines:\\nfirst" });
    expect(configOf(shown, {})).toMatchObject(config);
  });
});

describe("numbers", () => {
  it.each([
    ["1e-4", 0.0001],
    [" 0.05 ", 0.05],
    ["1,000", 1000],
    ["1 000 000", 1_000_000],
    [".5", 0.5],
  ])("%s is read", (text, value) => expect(parseNumber(text)).toBe(value));
  it.each(["", "ten", "0x10", "1e999", "1.2.3", "NaN", "1,5"])("%s is none", (text) => expect(parseNumber(text)).toBeNull());
});

describe("the rules of a job", () => {
  it("accept what a new form starts with", () => {
    expect(messagesFor({})).toEqual([]);
  });

  it("send nothing about the training that nobody typed", () => {
    expect(configOf(startingValues("p1").config, {})).toEqual({});
    const folder = changed({}, { "model.preset": "", "model.path": "models/llama" });
    expect(configOf(folder, {})).toEqual({ model: { path: "models/llama" } });
  });

  it("name the field of a mistake as the server does", () => {
    const config = valuesOf({ learning_rate: 0, optimizer: { weight_decay: -1 } });
    expect(messagesFor({ config })).toEqual([
      "config.learning_rate: The value must be greater than 0.",
      "config.optimizer.weight_decay: The value must be at least 0.",
    ]);
  });

  it("ask for the name of a new project and of another GPU", () => {
    expect(messagesFor({ project: NEW_PROJECT, gpu: OTHER_GPU })).toHaveLength(2);
  });
});

describe("starting a job", () => {
  it("creates the project with it when there is none", () => {
    const values = { ...startingValues(NEW_PROJECT), projectName: " Poems ", gpu: OTHER_GPU, otherGpu: "H200", host_memory: "1,536" };
    const config = { data: { train_path: "poems.txt" } };
    expect(newJobBody(values, config, 771_328)).toEqual({
      config,
      project: { name: "Poems", model_architecture: "transformer", model_size: 0.000771, training_data_path: "poems.txt" },
      gpu_type: "H200",
      host_memory: 1536,
    });
  });

  it("sends nothing but the project from a form that nobody touched", () => {
    const values = startingValues("p1");
    expect(newJobBody(values, configOf(values.config, {}), null)).toEqual({ config: {}, project_id: "p1" });
  });

  it("puts refusals at their fields, and the others above with their path", () => {
    const problem = new ApiProblem("…", {
      status: 422,
      code: "invalid_input",
      fieldErrors: [
        { field: "config.optimizer.weight_decay", message: "Too small." },
        { field: "gpu_type", message: "This server has no H200." },
        { field: "config.modle", message: "Extra inputs are not permitted" },
      ],
    });
    expect(jobFailure(problem, OTHER_GPU)).toEqual({
      fields: [
        { path: "config.optimizer.weight_decay", message: "Too small." },
        { path: "otherGpu", message: "This server has no H200." },
      ],
      others: ["config.modle: Extra inputs are not permitted"],
    });
  });
});

const config = { epochs: 3, data: { train_path: "/data/a.jsonl", tokenizer: { kind: "file", path: "/models/m/tokenizer.json" } }, model: { path: "/models/m", preset: null } };

const given = { requested_config: config, dataset_id: null, mix: [], eval_dataset_id: null, model_id: null, gpu_type: null, host_memory: null };

it("starts a job like another one with what was set for it", () => {
  expect(likeJob(given)).toEqual({ config });
  expect(likeJob({ ...given, requested_config: { memory: "stream" }, gpu_type: "H200", host_memory: 512 })).toEqual({ config: { memory: { mode: "stream" } }, gpu_type: "H200", host_memory: 512 });
});

it("mixes the same datasets with the same weights", () => {
  expect(likeJob({ ...given, dataset_id: "d1", mix: [{ dataset_id: "d2", name: "more", weight: 0.5 }] }).mix).toEqual([{ dataset_id: "d2", weight: "0.5" }]);
});

it("names what was given by id by its id, and no path with it", () => {
  const like = likeJob({ ...given, dataset_id: "d1", model_id: "m1" });
  expect(like).toEqual({ config: { epochs: 3, model: { preset: null } }, dataset_id: "d1", model_id: "m1" });
});

import { describe, expect, it } from "vitest";
import { ApiProblem } from "@/api/problem";
import { configOf, parseConfig, valueAt, valuesOf, withValue } from "./job-config";
import { NEW_PROJECT, OTHER_GPU, STARTING_CONFIG, jobFailure, jobRules, newJobBody, startingValues } from "./job-rules";
import { parseNumber } from "./number-rules";

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

  it("says what is wrong with text that is no config", () => {
    expect(parseConfig("[1]").mistake).toContain("object");
    expect(parseConfig('{"epochs": ').mistake).toContain("not valid JSON");
    expect(parseConfig("  ")).toEqual({ config: {}, mistake: null });
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

  it("name the field of a mistake as the server does", () => {
    const config = valuesOf({ ...STARTING_CONFIG, learning_rate: 0, optimizer: { weight_decay: -1 } });
    expect(messagesFor({ config })).toEqual([
      "config.learning_rate: It must be more than 0.",
      "config.optimizer.weight_decay: It must be at least 0.",
    ]);
  });

  it("ask for the name of a new project and of another GPU", () => {
    expect(messagesFor({ project: NEW_PROJECT, gpu: OTHER_GPU })).toHaveLength(2);
  });
});

describe("starting a job", () => {
  it("creates the project with it when there is none", () => {
    const values = { ...startingValues(NEW_PROJECT), projectName: " Poems ", gpu: OTHER_GPU, otherGpu: "H200", hostMemory: "1,536" };
    expect(newJobBody(values, { data: { train_path: "poems.txt" } }, 771_328)).toMatchObject({
      projectId: null,
      project: { name: "Poems", modelSize: 0.000771, trainingDataPath: "poems.txt" },
      gpuType: "H200",
      hostMemory: 1536,
      name: null,
    });
  });

  it("puts refusals at their fields, and the others above with their place", () => {
    const problem = new ApiProblem("…", {
      status: 422,
      code: "invalid_input",
      fieldErrors: [
        { field: "config.optimizer.weight_decay", message: "Too small." },
        { field: "gpuType", message: "This server has no H200." },
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

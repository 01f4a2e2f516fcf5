import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { emailAddress, newPassword, personName } from "./rules";
import { type ProjectFormValues, emptyProject, rulesFor } from "./project-form";

const projectRules = rulesFor(true);
const filled: ProjectFormValues = { ...emptyProject, name: "Contracts", modelSize: "7" };
const sizeMessage = (modelSize: string) =>
  projectRules.safeParse({ ...filled, modelSize }).error?.issues.map((issue) => issue.message)[0];

describe("project rules", () => {
  it("turn what was typed into what the server takes", () => {
    expect(projectRules.parse({ ...filled, name: "  Contracts ", modelSize: " 0.5 ", description: "  " })).toEqual({
      name: "Contracts",
      description: null,
      modelArchitecture: "transformer",
      modelSize: 0.5,
      trainingDataPath: null,
    });
  });

  it.each(["7", "0.124", "10000"])("take %s billion parameters", (size) => {
    expect(sizeMessage(size)).toBeUndefined();
  });

  it.each(["seven", "1e3", "0x10", "-1", "1,5", "7B", "."])("ask for a plain number instead of %s", (size) => {
    expect(sizeMessage(size)).toBe("Enter a plain number, such as 7 or 0.5.");
  });

  it("keep the size between nothing and ten trillion", () => {
    expect(sizeMessage("")).toContain("Enter the size");
    expect(sizeMessage("0")).toContain("greater than 0");
    expect(sizeMessage("10000.1")).toContain("at most 10,000");
  });

  it("refuse names that are empty or too long", () => {
    expect(projectRules.safeParse({ ...filled, name: "   " }).success).toBe(false);
    expect(projectRules.safeParse({ ...filled, name: "x".repeat(120) }).success).toBe(true);
    expect(projectRules.safeParse({ ...filled, name: "x".repeat(121) }).success).toBe(false);
  });
});

describe("account rules", () => {
  it("ask for ten characters and leave the choice of them to the person", () => {
    expect(newPassword.safeParse("aaaa bbbb").success).toBe(false);
    expect(newPassword.safeParse("only words").success).toBe(true);
    expect(newPassword.safeParse("x".repeat(129)).success).toBe(false);
  });

  it("do not trim passwords", () => {
    expect(newPassword.parse("  spaces at both ends  ")).toBe("  spaces at both ends  ");
  });

  it("trim names and addresses, and catch what is no address", () => {
    expect(emailAddress.parse(" ada@example.com ")).toBe("ada@example.com");
    expect(emailAddress.safeParse("ada at example.com").success).toBe(false);
    expect(personName.safeParse("  ").success).toBe(false);
  });
});

it("no form types a limit of its own", () => {
  const sources = readdirSync(new URL("..", import.meta.url), { recursive: true, encoding: "utf8" }).filter((name) => /\.tsx?$/.test(name) && !name.includes(".test."));
  const typed = /(numberRule|textRule|textOrNull)\(\{|numberMistake\(\w[\w.]*, \{ \w+:|(?<!Math)\.(max\(\d|min\((?!1,)\d)|z\.enum\(\[/;
  expect(sources.filter((name) => typed.test(readFileSync(new URL(`../${name}`, import.meta.url), "utf8")))).toEqual([]);
});

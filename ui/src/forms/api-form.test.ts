import { expect, it } from "vitest";
import { ApiProblem } from "@/api/problem";
import { formFailure } from "./api-form";

const problem = (fieldErrors: { field: string; message: string }[]) =>
  new ApiProblem("name: Too long.", { status: 422, code: "invalid_input", fieldErrors });

const FIELDS = ["name", "modelSize", "trainingDataPath"];

it("puts each message at its field, in the order of the form, and nothing above", () => {
  const failure = formFailure(
    problem([
      { field: "modelSize", message: "Too big." },
      { field: "name", message: "Too long." },
    ]),
    FIELDS,
  );
  expect(failure.message).toBeNull();
  expect(failure.fields.map((field) => field.name)).toEqual(["name", "modelSize"]);
});

it("shows above the form what belongs to no field of it", () => {
  const failure = formFailure(
    problem([
      { field: "name", message: "Too long." },
      { field: "owner", message: "Unknown owner." },
    ]),
    FIELDS,
  );
  expect(failure).toEqual({ message: "Unknown owner.", fields: [{ name: "name", message: "Too long." }] });
});

it("shows the sentence of a problem without fields", () => {
  expect(formFailure(problem([]), FIELDS).message).toBe("name: Too long.");
});

it("finds the field that holds a nested one", () => {
  expect(formFailure(problem([{ field: "name.0", message: "Odd." }]), FIELDS).fields).toEqual([
    { name: "name", message: "Odd." },
  ]);
});

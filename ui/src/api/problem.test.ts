import { expect, it } from "vitest";
import { ApiProblem, mayPass, problemFromBody, sentenceOf, unreachable } from "./problem";

it("takes sentence, code and fields from a problem document", () => {
  const problem = problemFromBody(422, {
    code: "invalid_input",
    detail: "name: too long",
    errors: [{ field: "name", message: "Too long." }, { field: 3 }],
  });
  expect(problem).toMatchObject({ message: "name: too long", code: "invalid_input", status: 422 });
  expect(problem.fieldErrors).toEqual([{ field: "name", message: "Too long." }]);
});

it("has a sentence for an answer that is no problem document, such as a proxy's page", () => {
  expect(problemFromBody(502, "<html>Bad gateway</html>").message).toContain("502");
});

it("tries again only what may pass by itself", () => {
  expect(mayPass(unreachable())).toBe(true);
  expect(mayPass(new ApiProblem("", { status: 503, code: "" }))).toBe(true);
  expect(mayPass(new ApiProblem("", { status: 404, code: "" }))).toBe(false);
  expect(mayPass(new TypeError("a bug"))).toBe(false);
});

it("never shows the inside of a bug", () => {
  expect(sentenceOf(new TypeError("undefined is not a function"))).not.toContain("undefined");
});

// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { safeNextPath } from "./next-path";

describe("where a sign-in leads", () => {
  it.each(["/projects", "/projects/7?x=1#top", "/settings?tab=tokens"])("follows a path of this site: %s", (next) => {
    expect(safeNextPath(next)).toBe(next);
  });

  it.each([
    undefined,
    "",
    "projects",
    "https://evil.example/",
    "//evil.example/",
    "/\\evil.example/",
    "\\\\evil.example",
    "/\t/evil.example",
    "/\n/evil.example",
    "javascript:alert(1)",
    "/./%2F/../..//evil.example",
  ])("goes home instead of to %j", (next) => {
    expect(safeNextPath(next)).toBe("/dashboard");
  });

  it.each(["/auth", "/auth/verify", "/api/auth/sign-out"])("does not lead back to the door: %s", (next) => {
    expect(safeNextPath(next)).toBe("/dashboard");
  });
});

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const source = fileURLToPath(new URL("..", import.meta.url));
const styles = readFileSync(join(source, "styles/app.css"), "utf8");

type Colour = readonly [red: number, green: number, blue: number];

function token(name: string): Colour {
  const hex = new RegExp(`--color-${name}: #([0-9a-f]{6});`).exec(styles)?.[1];
  if (hex === undefined) throw new Error(`app.css has no colour ${name}.`);
  return [0, 2, 4].map((at) => Number.parseInt(hex.slice(at, at + 2), 16)) as unknown as Colour;
}

const mix = (above: Colour, below: Colour, share: number) => above.map((part, index) => part * share + (below[index] ?? 0) * (1 - share)) as unknown as Colour;

function luminance(colour: Colour): number {
  const [red, green, blue] = colour.map((part) => (part <= 10.31 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4)) as unknown as Colour;
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one: Colour, other: Colour): number {
  const [dark, light] = [luminance(one), luminance(other)].toSorted((a, b) => a - b) as [number, number];
  return (light + 0.05) / (dark + 0.05);
}

const WHITE: Colour = [255, 255, 255];
const card = token("card");
/** What text stands on: surfaces, and the tints of notices and chosen options in a card. */
const surfaces: [string, Colour][] = [
  ...["page", "rail", "card", "raised"].map((name): [string, Colour] => [name, token(name)]),
  ["lighter row", mix(WHITE, card, 0.06)],
  ["chosen option", mix(token("violet"), card, 0.15)],
  ["chosen offer", mix(token("teal"), card, 0.12)],
  ["good notice", mix(token("success"), card, 0.08)],
  ["bad notice", mix(token("danger"), card, 0.1)],
  ["notice that needs attention", mix(token("warning"), card, 0.08)],
];

describe.each(["text", "dim", "faint", "violet-soft"])("%s", (name) => {
  it.each(surfaces)("is readable on: %s", (_, surface) => {
    expect(contrast(token(name), surface)).toBeGreaterThanOrEqual(4.5);
  });
});

it.each(["violet", "violet-bright", "danger-strong", "danger-bright", "primary", "primary-mid", "teal-deep"])("white text is readable on %s", (name) => {
  expect(contrast(WHITE, token(name))).toBeGreaterThanOrEqual(4.5);
});

it("has every colour of the app in it", () => {
  const files = readdirSync(source, { recursive: true, encoding: "utf8" }).filter((path) => /\.(tsx?|css)$/.test(path) && !path.includes(".test.") && !/^(styles\/app|card\/card)\.css$|^api\/schema/.test(path));
  const spelledOut = files.filter((path) => /#(?:[0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})\b|\brgba?\(|\bhsla?\(/i.test(readFileSync(join(source, path), "utf8")));
  expect(spelledOut).toEqual([]);
});

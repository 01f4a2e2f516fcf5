import { expect, it } from "vitest";
import { motionAlong } from "./plot";

/** A scale of 800 pixels that reached to `before` and now reaches to `after`. */
const grown = (before: number, after: number) => motionAlong(0, (before / after) * 800, 800);

const position = (step: number, last: number) => (step / last) * 800;

it("lets a drawing begin where every value lay on the earlier scale", () => {
  const motion = grown(100, 110);
  for (const step of [0, 40, 100]) {
    expect((motion?.shift ?? NaN) + (motion?.stretch ?? NaN) * position(step, 110)).toBeCloseTo(position(step, 100));
  }
  expect(motion?.visible).toBe(true);
});

it("begins at the same place on a scale whose both ends moved", () => {
  // The earlier ends lie 80 pixels inside the new ones.
  expect(motionAlong(80, 720, 800)).toEqual({ stretch: 1.25, shift: -100, visible: true });
});

it("does not move by less than a pixel, and not so far that labels are distorted", () => {
  expect(grown(10_000, 10_005)?.visible).toBe(false);
  expect(grown(2, 3)).toBeNull();
  expect(grown(100, 10)).toBeNull();
  expect(motionAlong(0, 0, 800)).toBeNull();
});

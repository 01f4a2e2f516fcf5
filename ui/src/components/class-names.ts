import { type ClassValue, clsx } from "clsx";
import { extendTailwindMerge } from "tailwind-merge";

// The merger has to know our own type sizes, or it would take `text-2xs` for a colour and drop it.
const merge = extendTailwindMerge({
  extend: { classGroups: { "font-size": [{ text: ["2xs"] }], rounded: [{ rounded: ["control", "card"] }] } },
});

export const cn = (...classes: ClassValue[]) => merge(clsx(classes));

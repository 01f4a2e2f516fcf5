import type { Mark } from "@/api/job-summary";
import { countText, settingText } from "@/text/numbers";

export type ChartMark = { step: number; label: string };

const NAMES: Record<string, string> = {
  learning_rate: "learning rate",
  weight_decay: "weight decay",
  clip_norm: "clip norm",
  eval_every_steps: "evaluate every",
  save_every_steps: "save every",
};

export const settingName = (name: string) => NAMES[name] ?? name.replaceAll("_", " ");

/**
 * What charts mark. A run confirms every command with all settings in force, a pause as well as a new
 * learning rate, so only what differs from the confirmation before is worth a line.
 */
export function chartMarks(marks: readonly Mark[]): ChartMark[] {
  const result: ChartMark[] = [];
  let inForce: Record<string, number> = {};
  for (const mark of marks) {
    if (mark.kind === "resumed") {
      result.push({ step: mark.step, label: `resumed from ${countText(mark.step)}` });
    } else if (mark.kind === "applied") {
      const changed = Object.entries(mark.settings).filter(([name, value]) => inForce[name] !== value);
      inForce = mark.settings;
      if (changed.length === 0) continue;
      result.push({ step: mark.step, label: changed.map(([name, value]) => `${settingName(name)} ${settingText(value)}`).join(", ") });
    }
  }
  return result.toSorted((a, b) => a.step - b.step);
}

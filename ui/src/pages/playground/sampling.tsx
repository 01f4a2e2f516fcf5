/** Sampling settings, as typed and as sent, stored for the life of the tab. */
import type { Sampled } from "@/api/playground";
import { SamplingSettings } from "@/api/request-fields";
import { Input, Textarea } from "@/components/input";
import { Field } from "@/forms/field";
import { numberMistake, parseNumber } from "@/forms/rules";
import type { Mode } from "./conversation";

export type SamplingTexts = { temperature: string; topP: string; maxTokens: string; stop: string; seed: string; system: string };

export const STARTING: SamplingTexts = { temperature: "0.7", topP: "1", maxTokens: "256", stop: "", seed: "", system: "" };

const SCHEMAS = {
  temperature: SamplingSettings.temperature,
  topP: SamplingSettings.top_p,
  maxTokens: SamplingSettings.max_tokens,
  seed: SamplingSettings.seed,
} as const;

type Numeric = keyof typeof SCHEMAS;

export function mistakesIn(texts: SamplingTexts): Partial<Record<Numeric, string>> {
  return Object.fromEntries(
    (Object.keys(SCHEMAS) as Numeric[]).flatMap((name) => {
      const mistake = numberMistake(texts[name], SCHEMAS[name]);
      return mistake === null ? [] : [[name, mistake]];
    }),
  );
}

/** What is left empty gets its starting value; no seed means another answer every time. An answer is never longer than the context. */
export function sampledBy(texts: SamplingTexts, model: string, contextLength: number | null): Sampled {
  const value = (name: Numeric) => parseNumber(texts[name]) ?? parseNumber(STARTING[name]);
  const stop = texts.stop.split("\n").filter((line) => line !== "");
  const seed = value("seed");
  return {
    model,
    temperature: value("temperature") ?? 0,
    top_p: value("topP") ?? 1,
    max_tokens: Math.min(value("maxTokens") ?? 1, contextLength ?? Infinity),
    ...(stop.length > 0 ? { stop: stop.slice(0, 4) } : {}),
    ...(seed === null ? {} : { seed }),
  };
}

export type PlaygroundSettings = { mode: Mode; sideBySide: boolean; sampling: SamplingTexts };

const STORAGE_KEY = "playground settings";
const FIRST: PlaygroundSettings = { mode: "chat", sideBySide: true, sampling: STARTING };

/** The last settings of this tab. */
export function loadSettings(): PlaygroundSettings {
  try {
    const kept = JSON.parse(sessionStorage.getItem(STORAGE_KEY) ?? "{}") as Partial<PlaygroundSettings>;
    return { ...FIRST, ...kept, sampling: { ...STARTING, ...kept.sampling } };
  } catch {
    return FIRST;
  }
}

export function saveSettings(settings: PlaygroundSettings) {
  try {
    sessionStorage.setItem(STORAGE_KEY, JSON.stringify(settings));
  } catch {
    // Storage is full or forbidden: the next page starts as the first did.
  }
}

type SamplingFieldsProps = { texts: SamplingTexts; onChange: (texts: SamplingTexts) => void; chat: boolean };

const NUMBERS = [
  ["temperature", "Temperature"],
  ["topP", "Top-p"],
  ["maxTokens", "Max tokens"],
  ["seed", "Seed"],
] as const;

export function SamplingFields({ texts, onChange, chat }: SamplingFieldsProps) {
  const mistakes = mistakesIn(texts);
  const set = (name: keyof SamplingTexts) => (event: { target: { value: string } }) => onChange({ ...texts, [name]: event.target.value });
  return (
    <div className="grid gap-3.5">
      {chat && (
        <Field label="System prompt" optional>
          {(control) => <Textarea {...control} rows={2} value={texts.system} onChange={set("system")} className="min-h-16" />}
        </Field>
      )}
      <div className="grid grid-cols-2 gap-3.5">
        {NUMBERS.map(([name, label]) => (
          <Field key={name} label={label} help={SCHEMAS[name].description} error={mistakes[name]} optional={name === "seed"}>
            {(control) => <Input {...control} inputMode="decimal" autoComplete="off" value={texts[name]} onChange={set(name)} />}
          </Field>
        ))}
      </div>
      <Field label="Stop sequences" optional help="One sequence per line. Generation stops before the first match.">
        {(control) => <Textarea {...control} rows={1} value={texts.stop} onChange={set("stop")} className="min-h-10" />}
      </Field>
    </div>
  );
}

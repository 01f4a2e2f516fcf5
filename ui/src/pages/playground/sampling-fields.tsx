import { Input, Textarea } from "@/components/input";
import { Field } from "@/forms/field";
import { type SamplingTexts, mistakesIn } from "./sampling";

type SamplingFieldsProps = { texts: SamplingTexts; onChange: (texts: SamplingTexts) => void; chat: boolean };

const NUMBERS = [
  ["temperature", "Temperature", "0 always takes the likeliest."],
  ["topP", "Top-p", "How much of the likely is drawn from."],
  ["maxTokens", "Longest answer", "In tokens."],
  ["seed", "Seed", "The same one gives the same answer."],
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
        {NUMBERS.map(([name, label, help]) => (
          <Field key={name} label={label} help={help} error={mistakes[name]} optional={name === "seed"}>
            {(control) => <Input {...control} inputMode="decimal" autoComplete="off" value={texts[name]} onChange={set(name)} />}
          </Field>
        ))}
      </div>
      <Field label="Stop at" optional help="One text on each line; the answer ends before it.">
        {(control) => <Textarea {...control} rows={1} value={texts.stop} onChange={set("stop")} className="min-h-10" />}
      </Field>
    </div>
  );
}

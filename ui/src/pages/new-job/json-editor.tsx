import { Card, CardHeader } from "@/components/card";
import { Textarea } from "@/components/input";
import { Field } from "@/forms/field";

type JsonEditorProps = { text: string; mistake: string | null; onChange: (text: string) => void };

/** The config as JSON: everything the form has, and everything it has not. */
export function JsonEditor({ text, mistake, onChange }: JsonEditorProps) {
  return (
    <Card>
      <CardHeader title="Config as JSON" note="what you leave out gets recommended values" />
      <Field label="Training config" error={mistake ?? undefined} help="For example: max_steps, seed, model.layers, optimizer.beta2, eval.every_steps.">
        {(control) => (
          <Textarea
            {...control}
            value={text}
            rows={18}
            spellCheck={false}
            autoComplete="off"
            onChange={(event) => onChange(event.target.value)}
            className="font-mono text-xs leading-[1.65] max-sm:text-[16px]"
          />
        )}
      </Field>
    </Card>
  );
}

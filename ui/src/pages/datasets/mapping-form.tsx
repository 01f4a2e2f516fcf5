import { useState } from "react";
import { changeDataset } from "@/api/datasets";
import { sentenceOf } from "@/api/problem";
import type { Dataset, DatasetReport, Format } from "@/api/types";
import { Button } from "@/components/button";
import { Notice } from "@/components/notice";
import { Select } from "@/components/select";
import { Field } from "@/forms/field";
import { FORMATS, FORMAT_FIELDS, FORMAT_HELP, FORMAT_NAMES } from "./format-words";
import { mappingBody, mappingMistakes, startingMapping, withFormat } from "./mapping-rules";

const ENCODINGS = [
  ["", "Automatic"],
  ["utf-8", "UTF-8"],
  ["utf-16", "UTF-16"],
  ["latin-1", "Latin-1"],
] as const;

const FORMAT_OPTIONS = FORMATS.map((format) => [format, FORMAT_NAMES[format]] as const);

type MappingFormProps = { dataset: Dataset; report: DatasetReport; onDone: () => void };

/** Says by hand which column is what. The dataset is then looked at again. */
export function MappingForm({ dataset, report, onDone }: MappingFormProps) {
  const [values, setValues] = useState(() => startingMapping(dataset, report));
  const [tried, setTried] = useState(false);
  const [pending, setPending] = useState(false);
  const [failure, setFailure] = useState<string | null>(null);
  const mistakes = tried ? mappingMistakes(values) : {};
  const options = [["", "None"] as const, ...report.columns.map(({ name }) => [name, name] as const)];

  async function send(body: Parameters<typeof changeDataset>[1]) {
    setPending(true);
    setFailure(null);
    try {
      await changeDataset(dataset.id, body);
      onDone();
    } catch (error) {
      setFailure(sentenceOf(error));
    } finally {
      setPending(false);
    }
  }

  function submit(form: HTMLFormElement) {
    setTried(true);
    const [first] = Object.keys(mappingMistakes(values));
    if (first === undefined) void send(mappingBody(values));
    else form.querySelector<HTMLSelectElement>(`select[name="${first}"]`)?.focus();
  }

  return (
    <form
      noValidate
      aria-label="Which column is what"
      className="grid gap-3.5"
      onSubmit={(event) => {
        event.preventDefault();
        submit(event.currentTarget);
      }}
    >
      {failure && (
        <Notice tone="bad" role="alert">
          {failure}
        </Notice>
      )}
      <div className="grid gap-3.5 sm:grid-cols-2">
        <Field label="Format" help={FORMAT_HELP[values.format]}>
          {(control) => (
            <Select {...control} options={FORMAT_OPTIONS} value={values.format} onChange={(event) => setValues(withFormat(values, event.target.value as Format, report))} />
          )}
        </Field>
        {FORMAT_FIELDS[values.format].map(({ name, label, needed }) => (
          <Field key={`${values.format}-${name}`} label={`${label} is in column`} optional={!needed} error={mistakes[name]}>
            {(control) => (
              <Select
                {...control}
                name={name}
                options={options}
                value={values.columns[name] ?? ""}
                onChange={(event) => setValues({ ...values, columns: { ...values.columns, [name]: event.target.value } })}
              />
            )}
          </Field>
        ))}
        {report.encoding !== null && (
          <Field label="Encoding" help={`Read as ${report.encoding}.`}>
            {(control) => <Select {...control} options={ENCODINGS} value={values.encoding} onChange={(event) => setValues({ ...values, encoding: event.target.value as typeof values.encoding })} />}
          </Field>
        )}
      </div>
      <div className="flex flex-wrap justify-end gap-2">
        {dataset.format !== null && (
          <Button disabled={pending} onClick={() => void send({ format: null, columns: {}, encoding: null })}>
            Find it out again
          </Button>
        )}
        {report.mapping && (
          <Button disabled={pending} onClick={onDone}>
            Cancel
          </Button>
        )}
        <Button type="submit" variant="primary" pending={pending}>
          Read it like this
        </Button>
      </div>
    </form>
  );
}

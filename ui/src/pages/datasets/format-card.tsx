/** The format of a dataset, and the form that maps its columns to the fields of the format. */
import { useState } from "react";
import { changeDataset } from "@/api/datasets";
import { sentenceOf } from "@/api/problem";
import type { Dataset, DatasetReport, DatasetReport as Report, Format } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { Facts } from "@/components/figures";
import { Select } from "@/components/input";
import { Badge, Notice } from "@/components/notice";
import { useAction } from "@/components/toasts";
import { Field } from "@/forms/field";
import { sentence } from "@/text/numbers";

const FORMATS = ["text", "prompt_completion", "alpaca", "sharegpt", "messages", "oasst"] as const satisfies readonly Format[];

export const FORMAT_NAMES: Record<Format, string> = {
  text: "Plain text",
  prompt_completion: "Prompt and completion",
  alpaca: "Alpaca",
  sharegpt: "ShareGPT",
  messages: "Messages",
  oasst: "Open Assistant trees",
};

type FormatField = { name: string; label: string; needed: boolean };

const requiredField = (name: string, label: string): FormatField => ({ name, label, needed: true });
const optionalField = (name: string, label: string): FormatField => ({ name, label, needed: false });
const SYSTEM = optionalField("system", "System prompt");
const TOOLS = optionalField("tools", "Tools");
const LABEL = optionalField("label", "Label");

/** What a row of each format consists of; a column has to be named for what is needed. */
const FORMAT_FIELDS: Record<Format, FormatField[]> = {
  text: [requiredField("text", "Text")],
  prompt_completion: [requiredField("prompt", "Prompt"), requiredField("completion", "Completion"), SYSTEM, LABEL],
  alpaca: [requiredField("instruction", "Instruction"), optionalField("input", "Input"), requiredField("output", "Output"), SYSTEM],
  sharegpt: [requiredField("messages", "Conversation"), SYSTEM, TOOLS],
  messages: [requiredField("messages", "Messages"), SYSTEM, TOOLS, LABEL],
  oasst: [requiredField("tree", "Tree"), SYSTEM],
};

const FORMAT_HELP: Record<Format, string> = {
  text: "The model is trained on the whole text.",
  prompt_completion: "The model is trained on the completion only. Rows whose label is false are left out.",
  alpaca: "The prompt is the instruction followed by the input. The model is trained on the output only.",
  sharegpt: "Turns with “from” and “value”. The model is trained on the turns from “gpt”.",
  messages: "Turns with “role” and “content”. The model is trained on the assistant messages.",
  oasst: "Trees of replies. The model is trained on the answers of the best-ranked conversation of each tree.",
};

/** How the rows are read, how sure that is, and a way to say it better. */
export function FormatCard({ dataset, report }: { dataset: Dataset; report: DatasetReport }) {
  const [editing, setEditing] = useState(false);
  const { mapping, detection } = report;
  const byHand = dataset.format !== null;
  const made = dataset.source === "documents" || dataset.source === "questions";
  const unclear = mapping === null;
  // Without a column there is nothing to assign.
  const unreadable = unclear && report.columns.length === 0;
  return (
    <Card aria-label="Format">
      <CardHeader title="Format">
        {!unclear && !editing && (
          <Button size="small" onClick={() => setEditing(true)}>
            Change
          </Button>
        )}
      </CardHeader>
      {mapping && (
        <>
          <p className="flex flex-wrap items-center gap-x-2.5 gap-y-1 text-lg font-[590]">
            {FORMAT_NAMES[mapping.format]}
            <Badge tone={byHand || detection.confidence >= 0.9 ? "good" : "violet"}>{made ? "made by this server" : byHand ? "set manually" : `detected, ${Math.round(detection.confidence * 100)} % confidence`}</Badge>
          </p>
          <p className="mt-0.5 mb-3 text-sm text-dim">
            {byHand ? "" : `${sentence(detection.reason)} `}
            {FORMAT_HELP[mapping.format]}
          </p>
        </>
      )}
      {unreadable && (
        <p className="text-dim">
          <span className="font-[560] text-text">{sentence(detection.reason)}</span> The preview shows the reason for each row.
        </p>
      )}
      {unclear && !unreadable && (
        <p className="mb-3.5 text-dim">
          <span className="font-[560] text-text">Assign the columns.</span> {sentence(detection.reason)} You can train on this dataset after you assign the columns.
        </p>
      )}
      {unclear && detection.mapping && isPreference(report) && <TrainOnChosen dataset={dataset} mapping={detection.mapping} />}
      {unreadable ? (
        report.encoding !== null && <EncodingForm dataset={dataset} />
      ) : unclear || editing ? (
        <MappingForm dataset={dataset} report={report} onDone={() => setEditing(false)} />
      ) : (
        <Facts facts={columnFacts(mapping)} />
      )}
    </Card>
  );
}

function columnFacts(mapping: NonNullable<DatasetReport["mapping"]>): [string, string][] {
  return FORMAT_FIELDS[mapping.format].flatMap(({ name, label }) => {
    const column = mapping.columns[name];
    return column === undefined ? [] : [[label, column] as [string, string]];
  });
}

type Encoding = NonNullable<Dataset["encoding"]>;

type MappingValues = { format: Format; columns: Record<string, string>; encoding: Encoding | "" };

/** What is in force, or else what was guessed, however unsure. */
export function startingMapping(dataset: Pick<Dataset, "encoding">, report: Report): MappingValues {
  const known = report.mapping ?? report.detection.mapping ?? { format: "prompt_completion" as const, columns: {} };
  return { format: known.format, columns: withGuesses(known.format, known.columns, report), encoding: dataset.encoding ?? "" };
}

/** Another format, with the columns that bear the names of its fields. */
export const withFormat = (values: MappingValues, format: Format, report: Report): MappingValues => ({
  ...values,
  format,
  columns: withGuesses(format, values.columns, report),
});

/** Columns, and paths into those that hold lists or objects. */
const columnNames = (report: Report) => [...report.columns.map((column) => column.name), ...report.paths];

function withGuesses(format: Format, columns: Record<string, string>, report: Report): Record<string, string> {
  const names = columnNames(report);
  return Object.fromEntries(
    FORMAT_FIELDS[format].map(({ name }) => {
      const kept = columns[name];
      if (kept !== undefined && names.includes(kept)) return [name, kept];
      // A label is often a class, not a verdict: it is never taken unasked.
      return [name, (name !== "label" && names.find((column) => column.toLowerCase() === name)) || ""];
    }),
  );
}

/** Fields that still need a column, and columns that are used twice, each with its sentence. */
export function mappingMistakes({ format, columns }: MappingValues): Record<string, string> {
  const mistakes: Record<string, string> = {};
  const seen = new Map<string, string>();
  for (const { name, label, needed } of FORMAT_FIELDS[format]) {
    const column = columns[name] ?? "";
    if (column === "") {
      if (needed) mistakes[name] = "Choose a column.";
      continue;
    }
    const before = seen.get(column);
    if (before) mistakes[name] = `This column is already used for: ${before.toLowerCase()}.`;
    seen.set(column, label);
  }
  return mistakes;
}

export function mappingBody({ format, columns, encoding }: MappingValues) {
  const chosen = FORMAT_FIELDS[format].flatMap(({ name }) => (columns[name] ? [[name, columns[name]] as const] : []));
  return { format, columns: Object.fromEntries(chosen), encoding: encoding === "" ? null : encoding };
}

const ENCODINGS = [
  ["", "Automatic"],
  ["utf-8", "UTF-8"],
  ["utf-16-le", "UTF-16 (little endian)"],
  ["utf-16-be", "UTF-16 (big endian)"],
  ["windows-1252", "Windows-1252"],
  ["latin-1", "Latin-1"],
] as const;

const FORMAT_OPTIONS = FORMATS.map((format) => [format, FORMAT_NAMES[format]] as const);

const isPreference = ({ columns }: Report) => ["chosen", "rejected"].every((name) => columns.some((column) => column.name.toLowerCase() === name));

/** Preference pairs hold an answer that can be trained as it is. */
function TrainOnChosen({ dataset, mapping }: { dataset: Dataset; mapping: NonNullable<Report["mapping"]> }) {
  const { pending, run } = useAction(async () => void (await changeDataset(dataset.id, mapping)));
  return (
    <Button variant="primary" pending={pending} className="mb-3.5" onClick={run}>
      Train on chosen
    </Button>
  );
}

/** The encoding of a file that could not be read: with another one it may be. */
export function EncodingForm({ dataset }: { dataset: Dataset }) {
  const [encoding, setEncoding] = useState<Encoding | "">(dataset.encoding ?? "");
  const { pending, run } = useAction(async () => void (await changeDataset(dataset.id, { encoding: encoding === "" ? null : encoding })));
  return (
    <form
      noValidate
      aria-label="Encoding"
      className="mt-3 flex flex-wrap items-end gap-3"
      onSubmit={(event) => {
        event.preventDefault();
        run();
      }}
    >
      <Field label="Encoding" className="min-w-56">
        {(control) => <Select {...control} options={ENCODINGS} value={encoding} onChange={(event) => setEncoding(event.target.value as typeof encoding)} />}
      </Field>
      <Button type="submit" pending={pending}>
        Read again
      </Button>
    </form>
  );
}

type MappingFormProps = { dataset: Dataset; report: DatasetReport; onDone: () => void };

/** Maps columns to fields by hand. The dataset is then inspected again. */
export function MappingForm({ dataset, report, onDone }: MappingFormProps) {
  const [values, setValues] = useState(() => startingMapping(dataset, report));
  const [tried, setTried] = useState(false);
  const [pending, setPending] = useState(false);
  const [failure, setFailure] = useState<string | null>(null);
  const mistakes = tried ? mappingMistakes(values) : {};
  const options = [["", "None"] as const, ...columnNames(report).map((name) => [name, name] as const)];

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
      aria-label="Column mapping"
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
          <Field key={`${values.format}-${name}`} label={`${label} column`} optional={!needed} error={mistakes[name]}>
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
          <Field label="Encoding" help={`The file was read as ${report.encoding}. Change the encoding if characters look wrong.`}>
            {(control) => <Select {...control} options={ENCODINGS} value={values.encoding} onChange={(event) => setValues({ ...values, encoding: event.target.value as typeof values.encoding })} />}
          </Field>
        )}
      </div>
      <div className="flex flex-wrap justify-end gap-2">
        {dataset.format !== null && (
          <Button disabled={pending} onClick={() => void send({ format: null, columns: {}, encoding: null })}>
            Detect automatically
          </Button>
        )}
        {report.mapping && (
          <Button disabled={pending} onClick={onDone}>
            Cancel
          </Button>
        )}
        <Button type="submit" variant="primary" pending={pending}>
          Apply format
        </Button>
      </div>
    </form>
  );
}

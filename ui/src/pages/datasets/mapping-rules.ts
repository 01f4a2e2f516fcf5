/** Which column is what, said by a person: what the form starts with, what it lacks, what is sent. */
import type { Dataset, DatasetReport as Report, Format } from "@/api/types";
import { FORMAT_FIELDS } from "./format-words";

type Encoding = NonNullable<Dataset["encoding"]>;

export type MappingValues = { format: Format; columns: Record<string, string>; encoding: Encoding | "" };

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

function withGuesses(format: Format, columns: Record<string, string>, report: Report): Record<string, string> {
  const names = report.columns.map((column) => column.name);
  return Object.fromEntries(
    FORMAT_FIELDS[format].map(({ name }) => {
      const kept = columns[name];
      if (kept !== undefined && names.includes(kept)) return [name, kept];
      return [name, names.find((column) => column.toLowerCase() === name) ?? ""];
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
    if (before) mistakes[name] = `This column is the ${before.toLowerCase()} already.`;
    seen.set(column, label);
  }
  return mistakes;
}

export function mappingBody({ format, columns, encoding }: MappingValues) {
  const chosen = FORMAT_FIELDS[format].flatMap(({ name }) => (columns[name] ? [[name, columns[name]] as const] : []));
  return { format, columns: Object.fromEntries(chosen), encoding: encoding === "" ? null : encoding };
}

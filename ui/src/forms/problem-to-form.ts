import { ApiProblem, sentenceOf } from "@/api/problem";

export type FormFailure = {
  /** One sentence for the whole form, or null when the fields say it all. */
  message: string | null;
  fields: { name: string; message: string }[];
};

/** Sorts a failure into what a form can show beside its fields and what belongs above them. */
export function formFailure(error: unknown, fieldNames: readonly string[]): FormFailure {
  if (!(error instanceof ApiProblem)) return { message: sentenceOf(error), fields: [] };
  const fields: FormFailure["fields"] = [];
  const unmatched: string[] = [];
  for (const { field, message } of error.fieldErrors) {
    // The server names nested fields with dots; the form shows them at the field that holds them.
    const name = field.split(".")[0] ?? field;
    if (fieldNames.includes(name)) fields.push({ name, message });
    else unmatched.push(message);
  }
  // A field in the order of the form, so that the focus goes to the first one a person meets.
  fields.sort((a, b) => fieldNames.indexOf(a.name) - fieldNames.indexOf(b.name));
  if (fields.length === 0) return { message: error.message, fields };
  return { message: unmatched.length > 0 ? unmatched.join(" ") : null, fields };
}

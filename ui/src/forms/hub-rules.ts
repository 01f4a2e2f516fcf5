/** Ids as a hub writes them. */
import { z } from "./zod";

const NAME = String.raw`[\w.-]+`;

/** People copy the address of the page as often as the id. */
const withoutAddress = (text: string) =>
  text
    .trim()
    .replace(/^https?:\/\/[^/]+\//, "")
    .replace(/^datasets\//, "")
    .replace(/\/(tree|blob|resolve)\/.*$/, "")
    .replace(/\/$/, "");

const hubId = (empty: string, pattern: RegExp, wrong: string) =>
  z
    .string()
    .transform(withoutAddress)
    .pipe(z.string().min(1, empty).max(200, "An id can have at most 200 characters.").regex(pattern, wrong));

export const hubModelId = hubId("Enter the id of the model.", new RegExp(`^${NAME}/${NAME}$`), "An id looks like Qwen/Qwen2.5-0.5B-Instruct.");

/** The oldest datasets have no owner in their id. */
export const hubDatasetId = hubId("Enter the id of the dataset.", new RegExp(`^(${NAME}/)?${NAME}$`), "An id looks like tatsu-lab/alpaca.");

export const shortText = z
  .string()
  .trim()
  .max(200, "At most 200 characters.")
  .transform((text) => (text === "" ? null : text));

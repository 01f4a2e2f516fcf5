import type { Format } from "@/api/types";

export const FORMATS = ["text", "prompt_completion", "alpaca", "sharegpt", "messages"] as const satisfies readonly Format[];

export const FORMAT_NAMES: Record<Format, string> = {
  text: "Plain text",
  prompt_completion: "Prompt and completion",
  alpaca: "Alpaca",
  sharegpt: "ShareGPT",
  messages: "Messages",
};

type FormatField = { name: string; label: string; needed: boolean };

const needed = (name: string, label: string): FormatField => ({ name, label, needed: true });
const optional = (name: string, label: string): FormatField => ({ name, label, needed: false });
const SYSTEM = optional("system", "System prompt");
const TOOLS = optional("tools", "Tools");

/** What a row of each format consists of; a column has to be named for what is needed. */
export const FORMAT_FIELDS: Record<Format, FormatField[]> = {
  text: [needed("text", "Text")],
  prompt_completion: [needed("prompt", "Prompt"), needed("completion", "Completion"), SYSTEM],
  alpaca: [needed("instruction", "Instruction"), optional("input", "Input"), needed("output", "Output"), SYSTEM],
  sharegpt: [needed("messages", "Conversation"), SYSTEM, TOOLS],
  messages: [needed("messages", "Messages"), SYSTEM, TOOLS],
};

export const FORMAT_HELP: Record<Format, string> = {
  text: "Trained whole.",
  prompt_completion: "The completion is trained.",
  alpaca: "The output is trained; the input stands below the instruction.",
  sharegpt: "Turns with “from” and “value”. What gpt says is trained.",
  messages: "Turns with “role” and “content”. What the assistant says is trained.",
};

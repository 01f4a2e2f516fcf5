const METHODS: Record<string, string> = { full: "full", lora: "LoRA", qlora: "QLoRA" };

/** How a model was tuned, as people write it. */
export const methodText = (method: string | null): string | null => (method === null ? null : (METHODS[method] ?? method));

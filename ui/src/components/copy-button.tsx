import { Check, Copy } from "lucide-react";
import { useEffect, useState } from "react";
import { Button } from "./button";

type CopyButtonProps = { text: string; label: string; className?: string };

export function CopyButton({ text, label, className }: CopyButtonProps) {
  const [outcome, setOutcome] = useState<"copied" | "refused" | null>(null);

  useEffect(() => {
    if (outcome === null) return;
    const timer = setTimeout(() => setOutcome(null), 2500);
    return () => clearTimeout(timer);
  }, [outcome]);

  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      setOutcome("copied");
    } catch {
      // Browsers offer no clipboard to pages served over plain http from another machine.
      setOutcome("refused");
    }
  }

  return (
    <Button size="small" aria-label={label} onClick={() => void copy()} className={className}>
      {outcome === "copied" ? <Check aria-hidden className="text-success-soft" /> : <Copy aria-hidden />}
      <span aria-live="polite">{outcome === "copied" ? "Copied" : outcome === "refused" ? "Select and copy by hand" : "Copy"}</span>
    </Button>
  );
}

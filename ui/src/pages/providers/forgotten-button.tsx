import { useState } from "react";
import { sentenceOf } from "@/api/problem";
import { endForgottenMachines } from "@/api/providers";
import { Button } from "@/components/button";
import { Notice } from "@/components/notice";
import { counted } from "@/text/numbers";
import { useProviderTitle } from "./provider-titles";

type CheckResult = { tone: "good" | "bad"; lines: string[] };

/** For those who do not want to wait for the worker, or have none: ends what no job owns, and says where nobody could look. */
export function ForgottenButton() {
  const providerTitle = useProviderTitle();
  const [pending, setPending] = useState(false);
  const [result, setResult] = useState<CheckResult | null>(null);

  async function check() {
    setPending(true);
    setResult(null);
    try {
      const { ended, unseen } = await endForgottenMachines();
      const blind = unseen.map(({ provider, reason }) => `${providerTitle(provider)} could not be looked at: ${reason}`);
      const gone = ended.map(({ provider, key }) => `${key} at ${providerTitle(provider)} was ended.`);
      const first = ended.length > 0 ? `${counted(ended.length, "machine")} had no job.` : unseen.length > 0 ? null : "Every machine that runs has its job.";
      setResult({ tone: unseen.length > 0 ? "bad" : "good", lines: [...(first ? [first] : []), ...gone, ...blind] });
    } catch (error) {
      setResult({ tone: "bad", lines: [sentenceOf(error)] });
    } finally {
      setPending(false);
    }
  }

  return (
    <>
      <Button size="small" pending={pending} onClick={() => void check()}>
        Look for forgotten machines
      </Button>
      <div role="status" className="w-full">
        {result && (
          <Notice tone={result.tone} className="grid gap-1 text-sm break-words">
            {result.lines.map((line) => (
              <p key={line}>{line}</p>
            ))}
          </Notice>
        )}
      </div>
    </>
  );
}

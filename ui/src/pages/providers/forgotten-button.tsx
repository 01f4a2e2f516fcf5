import { useState } from "react";
import { sentenceOf } from "@/api/problem";
import { endForgottenMachines } from "@/api/providers";
import { Button } from "@/components/button";
import { Notice } from "@/components/notice";
import { counted } from "@/text/numbers";
import { usePlaceName } from "./place-names";

type Said = { tone: "good" | "bad"; lines: string[] };

/** For those who do not want to wait for the worker, or have none: ends what no job owns, and says where nobody could look. */
export function ForgottenButton() {
  const placeName = usePlaceName();
  const [pending, setPending] = useState(false);
  const [said, setSaid] = useState<Said | null>(null);

  async function look() {
    setPending(true);
    setSaid(null);
    try {
      const { ended, unseen } = await endForgottenMachines();
      const blind = unseen.map(({ provider, reason }) => `${placeName(provider)} could not be looked at: ${reason}`);
      const gone = ended.map(({ provider, key }) => `${key} at ${placeName(provider)} was ended.`);
      const first = ended.length > 0 ? `${counted(ended.length, "machine")} had no job.` : unseen.length > 0 ? null : "Every machine that runs has its job.";
      setSaid({ tone: unseen.length > 0 ? "bad" : "good", lines: [...(first ? [first] : []), ...gone, ...blind] });
    } catch (error) {
      setSaid({ tone: "bad", lines: [sentenceOf(error)] });
    } finally {
      setPending(false);
    }
  }

  return (
    <>
      <Button size="small" pending={pending} onClick={() => void look()}>
        Look for forgotten machines
      </Button>
      <div role="status" className="w-full">
        {said && (
          <Notice tone={said.tone} className="grid gap-1 text-sm break-words">
            {said.lines.map((line) => (
              <p key={line}>{line}</p>
            ))}
          </Notice>
        )}
      </div>
    </>
  );
}

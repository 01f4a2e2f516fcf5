/** How much of the quota is used, and for what. */
import { useQuery } from "@tanstack/react-query";
import { storageQuery } from "@/api/account";
import type { StorageUse } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { bytesText } from "@/text/numbers";

const KINDS: { kind: keyof StorageUse; text: string }[] = [
  { kind: "datasets", text: "Datasets" },
  { kind: "models", text: "Uploaded models" },
  { kind: "trained_models", text: "Trained and exported models" },
  { kind: "checkpoints", text: "Checkpoints" },
  { kind: "runs", text: "Logs and files of jobs" },
];

export function StorageCard() {
  const storage = useQuery(storageQuery);
  return (
    <Card>
      <CardHeader title="Storage" note={storage.data && `${bytesText(storage.data.total)} of ${bytesText(storage.data.quota)}`} />
      <Loaded query={storage} skeleton={<SkeletonRows rows={3} />}>
        {(use) => (
          <dl className="grid gap-2 text-sm">
            {KINDS.map(({ kind, text }) => (
              <div key={kind} className="flex flex-wrap justify-between gap-x-4">
                <dt className="text-dim">{text}</dt>
                <dd>{bytesText(use[kind])}</dd>
              </div>
            ))}
          </dl>
        )}
      </Loaded>
    </Card>
  );
}

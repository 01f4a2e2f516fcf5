import { useQuery } from "@tanstack/react-query";
import { Link2 } from "lucide-react";
import { useState } from "react";
import { sentenceOf } from "@/api/problem";
import { createShare, revokeShare, sharesQuery } from "@/api/shares";
import type { Job } from "@/api/types";
import { Button } from "@/components/button";
import { CopyButton } from "@/components/copy-button";
import { Dialog } from "@/components/dialog";
import { Loaded } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { SkeletonRows } from "@/components/skeleton";
import { TimeAgo } from "@/components/time-ago";
import { toast } from "@/components/toasts";

/** Links that show this job to anybody who has them, until they are revoked. */
export function ShareDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const shares = useQuery(sharesQuery(job.id));
  const [link, setLink] = useState<string | null>(null);
  const [pending, setPending] = useState(false);
  const [failure, setFailure] = useState<string | null>(null);

  async function attempt(action: () => Promise<void>) {
    setPending(true);
    setFailure(null);
    try {
      await action();
    } catch (error) {
      setFailure(sentenceOf(error));
    } finally {
      setPending(false);
    }
  }

  const revoke = (id: string) =>
    attempt(async () => {
      await revokeShare(job.id, id);
      setLink(null);
      toast("The link no longer works.");
    });

  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} title="Share" description="Whoever has a link sees this run's figures and charts, without an account. It shows no files, and changes nothing.">
      <div className="grid gap-4">
        {failure && (
          <Notice tone="bad" role="alert">
            {failure}
          </Notice>
        )}
        {link ? (
          <>
            <Notice tone="attention" role="status">
              Copy the link now. It is not shown again.
            </Notice>
            <div className="flex items-center gap-3 rounded-control border border-line-strong bg-rail py-2 pr-2 pl-3">
              <code className="min-w-0 flex-1 font-mono text-xs break-all select-all">{link}</code>
              <CopyButton text={link} label="Copy the link" />
            </div>
          </>
        ) : (
          <Button variant="primary" pending={pending} className="justify-self-start" onClick={() => void attempt(async () => setLink((await createShare(job.id)).link))}>
            <Link2 aria-hidden />
            Create a link
          </Button>
        )}
        <Loaded query={shares} skeleton={<SkeletonRows rows={1} />}>
          {({ items }) =>
            items.length === 0 ? null : (
              <section>
                <h3 className="mb-1 text-xs text-dim">Links that work now</h3>
                <ul>
                  {items.map((share) => (
                    <li key={share.id} className="flex items-center justify-between gap-3 border-t border-line py-2">
                      <span>
                        Created <TimeAgo at={share.createdAt} />
                      </span>
                      <Button size="small" disabled={pending} onClick={() => void revoke(share.id)}>
                        Revoke
                      </Button>
                    </li>
                  ))}
                </ul>
              </section>
            )
          }
        </Loaded>
      </div>
    </Dialog>
  );
}

/** Files of a rented job that are kept in the bucket, with addresses that expire. */
import { useQuery } from "@tanstack/react-query";
import { Download, Link2 } from "lucide-react";
import { useState } from "react";
import { createArtifactAddress, storedArtifactsQuery } from "@/api/jobs";
import { sentenceOf } from "@/api/problem";
import type { Job } from "@/api/types";
import { Button, CopyButton } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { Input } from "@/components/input";
import { LoadFailure } from "@/components/loaded";
import { toastFailure } from "@/components/toasts";
import { dateText } from "@/pages/offers/offer-selection";
import { bytesText, counted } from "@/text/numbers";

const VISIBLE_ROWS = 8;
/** A download starts at once; a link is for somebody else. */
const DOWNLOAD_SECONDS = 300;
const LINK_SECONDS = 7 * 86_400;

type Pending = { id: string; action: "download" | "link" };

/** Nothing, where nothing is kept. */
export function StoredArtifactsCard({ job }: { job: Pick<Job, "id" | "status"> }) {
  const stored = useQuery(storedArtifactsQuery(job));
  const [all, setAll] = useState(false);
  const [pending, setPending] = useState<Pending | null>(null);
  const [link, setLink] = useState<{ path: string; address: string } | null>(null);
  const items = stored.data?.items ?? [];
  if (items.length === 0) return <LoadFailure query={stored} />;

  async function create(next: Pending, path: string) {
    setPending(next);
    try {
      const { address } = await createArtifactAddress(job.id, next.id, next.action === "link" ? LINK_SECONDS : DOWNLOAD_SECONDS);
      if (next.action === "link") setLink({ path, address });
      else window.location.assign(address);
    } catch (error) {
      toastFailure(sentenceOf(error));
    } finally {
      setPending(null);
    }
  }

  const isPending = (id: string, action: Pending["action"]) => pending?.id === id && pending.action === action;
  const until = items.map(({ kept_until: keptUntil }) => keptUntil).reduce((first, each) => (each < first ? each : first));
  return (
    <Card>
      <CardHeader title="Files in the bucket" note={`${counted(items.length, "file")}, kept until ${dateText(until.slice(0, 10))}`} />
      <ul className="grid gap-2">
        {(all ? items : items.slice(0, VISIBLE_ROWS)).map(({ id, path, size }) => (
          <li key={id} className="flex flex-wrap items-center justify-between gap-x-4 gap-y-1.5">
            <span className="min-w-0 font-mono text-xs break-all">{path}</span>
            <span className="ml-auto flex items-center gap-2 text-xs text-dim tabular-nums">
              {bytesText(size)}
              <Button size="small" aria-label={`Download ${path} from the bucket`} pending={isPending(id, "download")} onClick={() => void create({ id, action: "download" }, path)}>
                <Download aria-hidden />
                Download
              </Button>
              <Button size="small" aria-label={`Create a link to ${path}`} pending={isPending(id, "link")} onClick={() => void create({ id, action: "link" }, path)}>
                <Link2 aria-hidden />
                Create link
              </Button>
            </span>
          </li>
        ))}
      </ul>
      {link && (
        <div role="status" className="mt-3 grid gap-1.5 text-xs">
          <p className="text-dim">This link to {link.path} works for 7 days. Everybody who has it can download the file.</p>
          <div className="flex items-center gap-2">
            <Input readOnly aria-label={`Link to ${link.path}`} value={link.address} onFocus={(event) => event.target.select()} />
            <CopyButton text={link.address} label={`Copy the link to ${link.path}`} />
          </div>
        </div>
      )}
      {items.length > VISIBLE_ROWS && (
        <Button size="small" className="mt-3" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? "Show fewer files" : `Show all ${counted(items.length, "file")}`}
        </Button>
      )}
    </Card>
  );
}

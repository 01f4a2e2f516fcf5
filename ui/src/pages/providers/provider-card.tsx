/** One provider: its connection and its capabilities. */
import { Check, ChevronRight, ExternalLink } from "lucide-react";
import { useState } from "react";
import { checkProvider, disconnectProvider, type Provider } from "@/api/providers";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { ConfirmDialog } from "@/components/dialog";
import { Badge, Notice, TextWithCode } from "@/components/notice";
import { TimeAgo } from "@/components/time-ago";
import { toast, toastFailure, useAction } from "@/components/toasts";
import { hoursText } from "@/text/numbers";
import { ConnectDialog } from "./connect-dialog";

/** One service: whether it is connected and as whom, what it can do and why not. */
export function ProviderCard({ provider, opened }: { provider: Provider; opened: boolean }) {
  const [connecting, setConnecting] = useState(opened && provider.available);
  const [leaving, setLeaving] = useState(false);
  const check = useAction(async () => {
    const { problem, title } = await checkProvider(provider.name);
    if (problem) toastFailure(problem);
    else toast(`The connection to ${title} works.`);
  });

  return (
    <Card aria-label={provider.title} className="flex h-full flex-col gap-3">
      <div className="flex flex-wrap items-center justify-between gap-2">
        <h3 className="text-lg font-[590]">{provider.title}</h3>
        <State provider={provider} />
      </div>
      {provider.connected && (
        <p className="text-sm text-dim">
          {provider.account ? <>Account: {provider.account}. </> : null}
          {provider.checked_at && (
            <>
              Checked <TimeAgo at={provider.checked_at} />.
            </>
          )}
        </p>
      )}
      {provider.problem && (
        <Notice tone="bad" className="text-sm wrap-anywhere">
          {provider.problem}
        </Notice>
      )}
      {!provider.available && provider.reason && <p className="text-sm wrap-anywhere text-dim">
          <TextWithCode text={provider.reason} />
        </p>}
      <Abilities provider={provider} />
      {provider.available && (
        <p className="text-xs text-dim">
          {provider.store
            ? `Files of jobs go through: ${provider.store.title}. ${provider.store.note}`
            : "Jobs need a storage bucket, or a public address of this server."}
        </p>
      )}
      <div className="mt-auto flex flex-wrap items-center gap-2">
        {provider.connected ? (
          <>
            <Button size="small" aria-label={`Check ${provider.title}`} pending={check.pending} onClick={check.run}>
              Check
            </Button>
            <Button size="small" aria-label={`Replace key of ${provider.title}`} onClick={() => setConnecting(true)}>
              Replace key
            </Button>
            <Button size="small" aria-label={`Disconnect ${provider.title}`} onClick={() => setLeaving(true)}>
              Disconnect
            </Button>
          </>
        ) : (
          provider.available && (
            <Button size="small" variant="primary" aria-label={`Connect ${provider.title}`} onClick={() => setConnecting(true)}>
              Connect
            </Button>
          )
        )}
        {provider.page && (
          <a href={provider.page} target="_blank" rel="noreferrer" className="ml-auto inline-flex items-center gap-1 text-xs text-violet-soft underline-offset-3 hover:underline">
            Provider website
            <ExternalLink aria-hidden className="size-3.5" />
          </a>
        )}
      </div>
      {connecting && <ConnectDialog provider={provider} onClose={() => setConnecting(false)} />}
      <ConfirmDialog
        open={leaving}
        onOpenChange={setLeaving}
        title={`Disconnect ${provider.title}?`}
        action="Disconnect"
        onConfirm={async () => {
          await disconnectProvider(provider.name);
          toast(`${provider.title} is disconnected.`);
        }}
      >
        The key is deleted from this server but stays valid at the provider. Jobs that run there can no longer be monitored or stopped from here.
      </ConfirmDialog>
    </Card>
  );
}

function State({ provider }: { provider: Provider }) {
  if (provider.connected) return <Badge tone={provider.problem ? "bad" : "good"}>{provider.problem ? "connection problem" : "connected"}</Badge>;
  return <Badge>{provider.available ? "not connected" : "not available"}</Badge>;
}

/** What a service can do in one line; what it cannot, and why, for those who ask. */
function Abilities({ provider }: { provider: Provider }) {
  const rows = capabilityRows(provider.capabilities);
  const cannot = rows.filter(({ can }) => !can);
  return (
    <div className="grid gap-2 text-xs">
      <ul aria-label={`Features of ${provider.title}`} className="flex flex-wrap gap-x-3 gap-y-1">
        {rows
          .filter(({ can }) => can)
          .map(({ text, reason }) => (
            <li key={text} title={reason ?? undefined} className="flex gap-1.5">
              <Check aria-hidden className="mt-0.5 size-3.5 shrink-0 text-success-soft" />
              {text}
            </li>
          ))}
      </ul>
      {cannot.length > 0 && (
        <details className="group/cannot">
          <summary className="flex w-max cursor-pointer list-none items-center gap-1 text-dim hover:text-text">
            <ChevronRight aria-hidden className="size-3.5 transition-transform duration-150 group-open/cannot:rotate-90" />
            Not supported by {provider.title}
          </summary>
          <ul className="mt-1.5 grid gap-1 pl-4.5">
            {cannot.map(({ text, reason }) => (
              <li key={text} className="text-dim">
                {text}
                {reason && (
                  <>
                    : <TextWithCode text={reason} />
                  </>
                )}
              </li>
            ))}
          </ul>
        </details>
      )}
    </div>
  );
}

type CapabilityRow = { text: string; can: boolean; reason: string | null };

/** What a service can do, in words; a "no" has its reason. */
export function capabilityRows(given: Provider["capabilities"]): CapabilityRow[] {
  const rows: CapabilityRow[] = [
    { text: "Managed jobs", ...given.runs_unattended },
    { text: "Multi-GPU", ...given.several_gpus },
    { text: "Multi-node", ...given.several_nodes },
    { text: "Spot instances", ...given.spot },
    { text: "Live prices", ...given.live_prices },
    { text: "Switches itself off", ...given.switch_off },
  ];
  if (given.longest_seconds !== null) {
    rows.push({ text: `Up to ${hoursText(given.longest_seconds / 3600)} per session`, can: true, reason: "Longer jobs resume from their last checkpoint in a new session." });
  }
  return rows;
}

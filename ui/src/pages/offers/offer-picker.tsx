/** The choice between this machine and the offers of providers. */
import { Link } from "@tanstack/react-router";
import { ChevronRight, OctagonAlert, TriangleAlert } from "lucide-react";
import { type ReactNode, useId, useState } from "react";
import type { Provider } from "@/api/providers";
import type { Offer, Offers } from "@/api/scripts";
import type { Machine } from "@/api/types";
import { Button } from "@/components/button";
import { cn } from "@/components/class-names";
import { Facts } from "@/components/figures";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { Badge, Notice, TextWithCode } from "@/components/notice";
import { ConnectDialog } from "@/pages/providers/connect-dialog";
import { counted, moneyRange } from "@/text/numbers";
import { bestOfEach, cautionsOf, connectionOf, creditText, dateText, gpuText, hoursRange, keyOf, LOCAL, noSwitchOff, offerLine, type OfferSelection, offerTitle } from "./offer-selection";

type OfferPickerProps = {
  selection: OfferSelection;
  /** What the job asks of a GPU; null: none is needed. */
  memoryGb: number | null;
  /** Where “Connect” comes back to; without it a dialog asks for the key, and nothing that was typed is left. */
  back?: string;
  /** What can be done at a service, by its name, while it is not connected. */
  instead?: Record<string, ReactNode>;
  /** Shown while the needs are not known yet. */
  waiting: string;
};

/** This machine and every service that could run a job, as cards of which one is chosen. */
export function OfferPicker({ selection, memoryGb, back, instead = {}, waiting }: OfferPickerProps) {
  const group = useId();
  return (
    <fieldset className="grid min-w-0 gap-2">
      <legend className="sr-only">Where to run</legend>
      <LocalCard group={group} selection={selection} memoryGb={memoryGb} />
      {selection.storage && !selection.storage.ready && (
        <Notice tone="attention" className="text-sm">
          <TextWithCode text={selection.storage.reason ?? ""} />
        </Notice>
      )}
      {selection.hasRequest ? (
        <Loaded query={selection.offers} skeleton={<SkeletonRows rows={3} className="h-16" />}>
          {(result) => <OfferList group={group} result={result} selection={selection} back={back} instead={instead} />}
        </Loaded>
      ) : (
        <p className="text-sm text-dim">{waiting}</p>
      )}
    </fieldset>
  );
}

type OfferListProps = { group: string; result: Offers; selection: OfferSelection; back?: string; instead: Record<string, ReactNode> };

function OfferList({ group, result, selection, back, instead }: OfferListProps) {
  const [all, setAll] = useState(false);
  const best = bestOfEach(result.offers);
  const { chosen } = selection;
  const chosenKey = chosen === LOCAL ? LOCAL : keyOf(chosen);
  const visible = all ? result.offers : result.offers.filter((offer) => best.includes(offer) || keyOf(offer) === chosenKey);
  return (
    <>
      {selection.gone && (
        <Notice tone="attention" role="status" className="text-sm">
          The offer you chose no longer meets the requirements of the job. {chosen === LOCAL ? "This machine" : "Another offer"} is selected instead.
        </Notice>
      )}
      {visible.map((offer) => (
        <OneOffer key={keyOf(offer)} group={group} offer={offer} checked={keyOf(offer) === chosenKey} onChoose={() => selection.pick(keyOf(offer))} provider={connectionOf(selection.connections, offer)} back={back} instead={instead[offer.provider]} />
      ))}
      {result.offers.length === 0 && <p className="text-sm text-dim">No provider offers a suitable machine. The reasons are listed below.</p>}
      <div className="flex flex-wrap items-start justify-between gap-2">
        {result.offers.length > best.length && (
          <Button size="small" aria-expanded={all} onClick={() => setAll(!all)}>
            {all ? "Show the best offer of each provider" : `Show all ${counted(result.offers.length, "offer")}`}
          </Button>
        )}
        <ExcludedList excluded={result.excluded} />
      </div>
    </>
  );
}

type OneOfferProps = { group: string; offer: Offer; checked: boolean; onChoose: () => void; provider: Provider | undefined; back?: string; instead: ReactNode };

function OneOffer({ group, offer, checked, onChoose, provider, back, instead }: OneOfferProps) {
  const assumed = offer.assumed.includes("price");
  return (
    <OfferCard
      group={group}
      title={offerTitle(offer)}
      line={offerLine(offer)}
      price={moneyRange(offer.cost.total)}
      priceNote={
        <>
          {creditText(offer) && <span className="mr-2 text-teal-pale">{creditText(offer)}</span>}
          {assumed ? "assumed price" : <span className={offer.stale ? "text-warning" : undefined}>price as of {dateText(offer.read_on)}</span>}
        </>
      }
      recommended={offer.recommended}
      checked={checked}
      onChoose={onChoose}
      reasons={offer.reasons}
      cautions={cautionsOf(offer)}
      danger={checked ? noSwitchOff(provider) : null}
      details={<OfferDetails offer={offer} />}
      action={provider && !provider.connected && (instead ?? <ConnectService provider={provider} back={back} onConnect={onChoose} />)}
    />
  );
}

/** Whoever connects a service for an offer wants that one. */
function ConnectService({ provider, back, onConnect }: { provider: Provider; back?: string; onConnect: () => void }) {
  const [asking, setAsking] = useState(false);
  if (!provider.available) return (
    <p className="max-w-sm text-dim sm:text-right">
      <TextWithCode text={provider.reason ?? ""} />
    </p>
  );
  const text = `Connect ${provider.title}`;
  if (back === undefined) {
    return (
      <>
        <Button
          size="small"
          onClick={() => {
            onConnect();
            setAsking(true);
          }}
        >
          {text}
        </Button>
        {asking && <ConnectDialog provider={provider} onClose={() => setAsking(false)} />}
      </>
    );
  }
  return (
    <Button asChild size="small">
      <Link to="/providers" search={{ connect: provider.name, back }} onClick={onConnect}>
        {text}
      </Link>
    </Button>
  );
}

/** Prices count GPU memory in these. */
const GIB = 2 ** 30;
const NO_WORKER = "No worker is running on this machine. The job waits in the queue until a worker starts.";

/** Cautions about this machine, as sentences. */
export function localCautions(machines: readonly Machine[], memoryGb: number | null): string[] {
  if (machines.length === 0) return [NO_WORKER];
  if (memoryGb === null) return [];
  const largest = Math.max(0, ...machines.flatMap(({ gpu_memory_bytes: gpuMemoryBytes }) => gpuMemoryBytes)) / GIB;
  if (largest === 0) return ["This machine has no GPU. The job probably needs a GPU: without one, it may be slow or fail."];
  return largest < memoryGb ? [`The largest GPU of this machine has ${Math.round(largest)} GB. The job needs about ${Math.round(memoryGb)} GB.`] : [];
}

function LocalCard({ group, selection, memoryGb }: { group: string; selection: OfferSelection; memoryGb: number | null }) {
  const machines = selection.machines ?? [];
  const devices = [...new Set(machines.flatMap(({ gpus }) => gpus))];
  return (
    <OfferCard
      group={group}
      title={`This machine · ${devices.join(", ") || "CPU"}`}
      line={machines.map(({ name }) => name).join(", ")}
      price="$0"
      priceNote="own hardware"
      checked={selection.chosen === LOCAL}
      onChoose={() => selection.pick(LOCAL)}
      cautions={selection.machines ? localCautions(machines, memoryGb) : []}
    />
  );
}

type OfferCardProps = {
  /** The radio buttons of one choice share a name. */
  group: string;
  title: string;
  line: string;
  price: string;
  priceNote: ReactNode;
  checked: boolean;
  onChoose: () => void;
  recommended?: boolean;
  disabled?: boolean;
  reasons?: readonly string[];
  cautions?: readonly string[];
  /** How money could be lost, for the chosen offer. */
  danger?: string | null;
  /** What a person has to do before this can be taken. */
  action?: ReactNode;
  details?: ReactNode;
};

/** One machine to run a job on. A radio button underneath: arrow keys move. Other controls lie outside its label. */
function OfferCard({ group, title, line, price, priceNote, checked, onChoose, recommended, disabled, reasons = [], cautions = [], danger, action, details }: OfferCardProps) {
  const id = useId();
  return (
    <div
      className={cn(
        "rounded-control border border-line-strong transition-colors duration-150 has-focus-visible:outline-2 has-focus-visible:outline-offset-2 has-focus-visible:outline-violet-soft",
        checked ? "border-teal-soft bg-teal/12" : "hover:border-white/25",
      )}
    >
      <label className={cn("block px-3.5 pt-2.5 pb-2", disabled ? "cursor-not-allowed" : "cursor-pointer")}>
        <input
          type="radio"
          name={group}
          checked={checked}
          disabled={disabled}
          onChange={onChoose}
          aria-labelledby={`${id}-title ${id}-price`}
          aria-describedby={`${id}-line`}
          className="sr-only"
        />
        <span className="flex flex-wrap items-baseline justify-between gap-x-4">
          <span className="flex min-w-0 flex-wrap items-center gap-x-2 gap-y-1 text-lg font-[590]">
            <span id={`${id}-title`} className="min-w-0 wrap-anywhere">
              {title}
            </span>
            {recommended && <Badge tone="teal">recommended</Badge>}
          </span>
          <span id={`${id}-price`} className="text-lg font-[620] tracking-[-0.01em] whitespace-nowrap tabular-nums">
            {price}
          </span>
        </span>
        <span id={`${id}-line`} className="mt-0.5 flex flex-wrap justify-between gap-x-4 text-xs text-dim">
          <span className="min-w-0">{line}</span>
          <span className="ml-auto text-right">{priceNote}</span>
        </span>
      </label>
      {(reasons.length > 0 || cautions.length > 0) && (
        <ul className="grid gap-0.5 px-3.5 pb-2 text-xs">
          {reasons.map((reason) => (
            <li key={reason} className="text-teal-pale">
              {reason}
            </li>
          ))}
          {cautions.map((caution) => (
            <li key={caution} className="flex gap-1.5 text-dim">
              <TriangleAlert aria-hidden className="mt-0.75 size-3 shrink-0 text-warning" />
              <span className="min-w-0">{caution}</span>
            </li>
          ))}
        </ul>
      )}
      {danger && (
        <p className="flex gap-1.5 px-3.5 pb-2 text-xs text-danger-soft">
          <OctagonAlert aria-hidden className="mt-0.75 size-3 shrink-0" />
          <span className="min-w-0">{danger}</span>
        </p>
      )}
      {(action || details) && (
        <div className="flex flex-wrap items-start justify-between gap-x-4 gap-y-2 px-3.5 pb-2.5 text-xs">
          {details && (
            <details className="group/offer min-w-0 flex-1 basis-60">
              <summary aria-label={`Cost details: ${title}`} className="flex w-max cursor-pointer list-none items-center gap-1 text-dim hover:text-text">
                <ChevronRight aria-hidden className="size-3.5 transition-transform duration-150 group-open/offer:rotate-90" />
                Cost details
              </summary>
              <div className="mt-2">{details}</div>
            </details>
          )}
          {action}
        </div>
      )}
    </div>
  );
}

/** Everything a price is made of, and where it was read. */
function OfferDetails({ offer }: { offer: Offer }) {
  const { compute, start_up: startUp, storage, network } = offer.cost;
  return (
    <div className="grid gap-2">
      <Facts
        facts={[
          ["Compute", moneyRange(compute)],
          ["Startup", moneyRange(startUp)],
          ["Disk", moneyRange(storage)],
          ["Network", moneyRange(network)],
          ...(offer.credit ? ([["Covered by credit", moneyRange(offer.credit.covered)], ["You pay", moneyRange(offer.credit.to_pay)]] as const) : []),
          ["Duration", hoursRange(offer.hours)],
          ["Memory per GPU", `${offer.memory_gb} GB`],
          ["Files go through", offer.store ? offer.store.title : "nothing is set up yet"],
          ["Price as of", `${dateText(offer.read_on)}${offer.stale ? ", more than 30 days ago" : ""}`],
        ]}
      />
      {offer.assumed.length > 0 && <p className="text-faint">Assumed values, without a published source: {offer.assumed.join(", ")}.</p>}
      {offer.features.length > 0 && <p className="text-faint">{offer.features.join("; ")}.</p>}
      <p className="wrap-anywhere text-faint">Source: {offer.source}</p>
    </div>
  );
}

/** What is not offered, by its reason: a list of machines says little, a list of reasons says what to change. */
export function byReason(excluded: Offers["excluded"]): [reason: string, machines: string[]][] {
  const groups = new Map<string, string[]>();
  for (const each of excluded) groups.set(each.reason, [...(groups.get(each.reason) ?? []), `${each.title} ${gpuText(each)}`]);
  return [...groups].map(([reason, machines]) => [reason, [...new Set(machines)]]);
}

function ExcludedList({ excluded }: { excluded: Offers["excluded"] }) {
  if (excluded.length === 0) return null;
  return (
    <details className="min-w-0 flex-1 basis-60 text-xs">
      <summary className="ml-auto w-max cursor-pointer py-1.5 text-dim hover:text-text">{counted(excluded.length, "excluded machine")} and the reasons</summary>
      <ul className="mt-1 grid gap-1.5 text-dim">
        {byReason(excluded).map(([reason, machines]) => (
          <li key={reason}>
            {reason} <span className="text-faint">{machines.join(", ")}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}

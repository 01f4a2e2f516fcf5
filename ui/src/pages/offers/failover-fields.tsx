/** What happens when the chosen offer has no machine: the job waits for it, or takes the next one. */
import type { components } from "@/api/schema";
import { Select } from "@/components/input";
import { Field } from "@/forms/field";
import { LOCAL, type OfferSelection } from "./offer-selection";

type Order = components["schemas"]["FailoverPreference"]["order"];
/** `providers`: only these; empty: any that is connected. */
export type Failover = { by: Order | "none"; providers: readonly string[] };

export const CHEAPEST_NEXT: Failover = { by: "cost", providers: [] };

const CHOICES = [
  ["cost", "Take the next cheapest offer"],
  ["time", "Take the offer that usually starts soonest"],
  ["none", "Wait for this offer"],
] as const satisfies readonly (readonly [Failover["by"], string])[];

/** As it is sent. An empty list of offers means that there is no other one. */
export const failoverBody = ({ by, providers }: Failover) => ({
  failover: by === "none" ? [] : null,
  failover_by: { order: by === "none" ? CHEAPEST_NEXT.by : by, providers: [...providers] } as components["schemas"]["FailoverPreference"],
});

type FailoverFieldsProps = { selection: Pick<OfferSelection, "chosen" | "connections">; failover: Failover; onChange: (failover: Failover) => void };

/** Nothing on this machine, and nothing where no other provider is connected: the job then waits. */
export function FailoverFields({ selection: { chosen, connections }, failover, onChange }: FailoverFieldsProps) {
  const others = connections.filter(({ name, connected }) => connected && chosen !== LOCAL && name !== chosen.provider);
  if (others.length === 0) return null;
  const change = (name: string, wanted: boolean) => onChange({ ...failover, providers: wanted ? [...failover.providers, name] : failover.providers.filter((each) => each !== name) });
  return (
    <div className="grid gap-2">
      <Field label="If no machine is free" help="The same GPU at another connected provider, within the same budget.">
        {(control) => <Select {...control} value={failover.by} options={CHOICES} onChange={(event) => onChange({ ...failover, by: event.target.value as Failover["by"] })} />}
      </Field>
      {failover.by !== "none" && others.length > 1 && (
        <fieldset className="flex flex-wrap gap-x-4 gap-y-1.5 text-sm">
          <legend className="mb-1 text-xs text-dim">Only at (none: at all of them)</legend>
          {others.map(({ name, title }) => (
            <label key={name} className="flex items-center gap-2 max-sm:py-1">
              <input type="checkbox" checked={failover.providers.includes(name)} onChange={(event) => change(name, event.target.checked)} className="size-4 shrink-0 accent-violet" />
              {title}
            </label>
          ))}
        </fieldset>
      )}
    </div>
  );
}

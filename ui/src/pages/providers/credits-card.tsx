/** Remaining credits at providers: stated by a person, lessened by the cost of their jobs. */
import { useQuery } from "@tanstack/react-query";
import { Coins, Plus } from "lucide-react";
import { useState } from "react";
import { type Credit, creditsQuery, removeCredit, stateCredit } from "@/api/providers";
import { CreditIn } from "@/api/request-fields";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { ConfirmDialog, Dialog } from "@/components/dialog";
import { EmptyState, Loaded, SkeletonRows } from "@/components/loaded";
import { toast } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { SelectField, TextField } from "@/forms/field";
import { numberRule } from "@/forms/rules";
import { z } from "@/forms/zod";
import { dateText } from "@/pages/offers/offer-selection";
import { moneyText } from "@/text/numbers";

/** What is left at each provider. Offers show what it covers. */
export function CreditsCard() {
  const credits = useQuery(creditsQuery);
  const [editing, setEditing] = useState<Credit | "new" | null>(null);
  const [doomed, setDoomed] = useState<Credit | null>(null);
  const add = (
    <Button variant="primary" onClick={() => setEditing("new")}>
      <Plus aria-hidden />
      Add a credit
    </Button>
  );
  const stated = new Set(credits.data?.items.map(({ provider }) => provider));
  const choices = (credits.data?.providers ?? []).filter(({ name }) => !stated.has(name));
  return (
    <Card>
      <CardHeader title="Remaining credits">{stated.size > 0 && choices.length > 0 && add}</CardHeader>
      <Loaded query={credits} skeleton={<SkeletonRows rows={2} />}>
        {({ items }) =>
          items.length === 0 ? (
            <EmptyState small icon={Coins} title="No credit is entered." action={add}>
              Enter the credit that is left at a provider. Offers there then show what the credit covers, and rank by what you pay yourself.
            </EmptyState>
          ) : (
            <ul className="grid gap-3">
              {items.map((credit) => (
                <li key={credit.provider} className="flex flex-wrap items-center justify-between gap-x-4 gap-y-1.5">
                  <span className="min-w-0">
                    <span className="font-[560] wrap-anywhere">{credit.title}</span>
                    <span className="block text-xs text-dim">
                      {moneyText(credit.amount)} stated for {dateText(credit.stated_at.slice(0, 10))}
                      {credit.spent > 0 ? `, ${moneyText(credit.spent)} spent by your jobs since` : ""}
                    </span>
                  </span>
                  <span className="flex items-center gap-3 text-sm tabular-nums">
                    <span className={credit.remaining === 0 ? "text-warning" : undefined}>
                      <b className="font-[600]">{moneyText(credit.remaining)}</b> left
                    </span>
                    <Button size="small" aria-label={`Change the credit at ${credit.title}`} onClick={() => setEditing(credit)}>
                      Change
                    </Button>
                    <Button size="small" aria-label={`Remove the credit at ${credit.title}`} onClick={() => setDoomed(credit)}>
                      Remove
                    </Button>
                  </span>
                </li>
              ))}
            </ul>
          )
        }
      </Loaded>
      {editing && (
        <Dialog
          open
          onOpenChange={(open) => !open && setEditing(null)}
          title={editing === "new" ? "Add a credit" : `Change the credit at ${editing.title}`}
          description="The provider's billing page shows the amount. The cost of your jobs there is subtracted from now on."
        >
          <CreditForm credit={editing === "new" ? null : editing} choices={choices} onClose={() => setEditing(null)} />
        </Dialog>
      )}
      <ConfirmDialog
        open={doomed !== null}
        onOpenChange={(open) => !open && setDoomed(null)}
        title={`Remove the credit at ${doomed?.title ?? ""}?`}
        action="Remove credit"
        onConfirm={async () => {
          if (doomed === null) return;
          await removeCredit(doomed.provider);
          toast("The credit was removed.");
        }}
      >
        Offers of this provider then count with their full cost. Nothing changes at the provider.
      </ConfirmDialog>
    </Card>
  );
}

const rules = z.object({
  provider: z.string().min(1, "Choose a provider."),
  amount: numberRule(CreditIn.amount).pipe(z.number("Enter an amount, such as 30.")),
  as_of: z.string().transform((day) => (day === "" ? null : day)),
});

type CreditFormProps = { credit: Credit | null; choices: readonly { name: string; title: string }[]; onClose: () => void };

function CreditForm({ credit, choices, onClose }: CreditFormProps) {
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { provider: credit?.provider ?? choices[0]?.name ?? "", amount: credit ? credit.remaining.toFixed(2) : "", as_of: "" },
    submit: async ({ provider, ...stated }) => {
      const { title, remaining } = await stateCredit(provider, stated);
      toast(`${title}: ${moneyText(remaining)} of credit left.`);
      onClose();
    },
  });
  return (
    <ApiForm label="Remaining credit" failure={failure} onSubmit={onSubmit}>
      {credit === null && <SelectField label="Provider" options={choices.map(({ name, title }) => [name, title] as const)} {...field("provider")} />}
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField label="Credit left, in US dollars" inputMode="decimal" autoComplete="off" placeholder="30" {...field("amount")} />
        <TextField type="date" label="Amount as of" optional help="Empty: now. For an earlier day, the cost since then is subtracted." {...field("as_of")} />
      </div>
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Save
        </Button>
      </div>
    </ApiForm>
  );
}

import { useQuery } from "@tanstack/react-query";
import { PiggyBank, Plus } from "lucide-react";
import { useState } from "react";
import { type Budget, budgetsQuery, removeBudget } from "@/api/providers";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { ConfirmDialog } from "@/components/confirm-dialog";
import { EmptyState } from "@/components/empty-state";
import { Loaded } from "@/components/loaded";
import { SkeletonRows } from "@/components/skeleton";
import { toast } from "@/components/toasts";
import { moneyText } from "@/text/money";
import { BudgetBar } from "./budget-bar";
import { BudgetDialog } from "./budget-dialog";

const nameOf = ({ scope, name }: Budget) => (scope === "user" ? "All my jobs" : name);
const PERIODS: Record<Budget["period"], string> = { month: "a month", total: "in all" };

/** How much may be spent: by a person and by each of their projects. A job's own budget is on its page. */
export function BudgetsCard() {
  const budgets = useQuery(budgetsQuery);
  const [editing, setEditing] = useState<Budget | "new" | null>(null);
  const [doomed, setDoomed] = useState<Budget | null>(null);
  const add = (
    <Button variant="primary" onClick={() => setEditing("new")}>
      <Plus aria-hidden />
      Set a budget
    </Button>
  );
  return (
    <Card>
      <CardHeader title="Budgets">{budgets.data && budgets.data.items.length > 0 && add}</CardHeader>
      <Loaded query={budgets} skeleton={<SkeletonRows rows={2} />}>
        {({ items }) =>
          items.length === 0 ? (
            <EmptyState icon={PiggyBank} title="No budget is set." action={add}>
              With one, you are warned at half and at 80 %. At the limit, jobs save a checkpoint and end.
            </EmptyState>
          ) : (
            <ul className="grid gap-4">
              {items.map((budget) => (
                <li key={budget.id}>
                  <div className="mb-1.5 flex flex-wrap items-center justify-between gap-x-4 gap-y-1.5">
                    <span className="min-w-0 font-[560] break-words">{nameOf(budget)}</span>
                    <span className="flex items-center gap-3 text-sm text-dim tabular-nums">
                      <span>
                        <b className="font-[600] text-text">{moneyText(budget.spent)}</b> of {moneyText(budget.limit)} {PERIODS[budget.period]}
                      </span>
                      <Button size="small" aria-label={`Change the budget of ${nameOf(budget)}`} onClick={() => setEditing(budget)}>
                        Change
                      </Button>
                      <Button size="small" aria-label={`Remove the budget of ${nameOf(budget)}`} onClick={() => setDoomed(budget)}>
                        Remove
                      </Button>
                    </span>
                  </div>
                  <BudgetBar label={`Spent of the budget of ${nameOf(budget)}`} spent={budget.spent} limit={budget.limit} />
                </li>
              ))}
            </ul>
          )
        }
      </Loaded>
      {editing && <BudgetDialog budget={editing === "new" ? null : editing} onClose={() => setEditing(null)} />}
      <ConfirmDialog
        open={doomed !== null}
        onOpenChange={(open) => !open && setDoomed(null)}
        title={`Remove the budget of ${doomed ? nameOf(doomed) : ""}?`}
        action="Remove budget"
        onConfirm={async () => {
          if (doomed === null) return;
          await removeBudget(doomed.id);
          toast("The budget was removed.");
        }}
      >
        Nothing then warns or ends jobs by what they cost together. Budgets of single jobs stay.
      </ConfirmDialog>
    </Card>
  );
}

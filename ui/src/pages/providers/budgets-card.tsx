/** Budgets of a person and of their projects. */
import { useQuery } from "@tanstack/react-query";
import { PiggyBank, Plus } from "lucide-react";
import { useState } from "react";
import { projectsQuery } from "@/api/projects";
import { type Budget, budgetsQuery, removeBudget, setBudget } from "@/api/providers";
import { BudgetIn } from "@/api/request-fields";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { cn } from "@/components/class-names";
import { ConfirmDialog, Dialog } from "@/components/dialog";
import { EmptyState, Loaded, SkeletonRows } from "@/components/loaded";
import { toast } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { SelectField, TextField } from "@/forms/field";
import { numberRule } from "@/forms/rules";
import { z } from "@/forms/zod";
import { moneyText } from "@/text/numbers";

const nameOf = ({ scope, name }: Budget) => (scope === "user" ? "All my jobs" : name);
const PERIOD_TEXTS: Record<Budget["period"], string> = { month: "per month", total: "in total" };

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
            <EmptyState small icon={PiggyBank} title="No budget is set." action={add}>
              A budget limits the cost of rented instances. You get a warning at 50 % and at 80 %. At the limit, jobs save a checkpoint and stop.
            </EmptyState>
          ) : (
            <ul className="grid gap-4">
              {items.map((budget) => (
                <li key={budget.id}>
                  <div className="mb-1.5 flex flex-wrap items-center justify-between gap-x-4 gap-y-1.5">
                    <span className="min-w-0 font-[560] wrap-anywhere">{nameOf(budget)}</span>
                    <span className="flex items-center gap-3 text-sm text-dim tabular-nums">
                      <span>
                        <b className="font-[600] text-text">{moneyText(budget.spent)}</b> of {moneyText(budget.limit)} {PERIOD_TEXTS[budget.period]}
                      </span>
                      <Button size="small" aria-label={`Change the budget for ${nameOf(budget)}`} onClick={() => setEditing(budget)}>
                        Change
                      </Button>
                      <Button size="small" aria-label={`Remove the budget for ${nameOf(budget)}`} onClick={() => setDoomed(budget)}>
                        Remove
                      </Button>
                    </span>
                  </div>
                  <BudgetBar label={`Budget used: ${nameOf(budget)}`} spent={budget.spent} limit={budget.limit} />
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
        title={`Remove the budget for ${doomed ? nameOf(doomed) : ""}?`}
        action="Remove budget"
        onConfirm={async () => {
          if (doomed === null) return;
          await removeBudget(doomed.id);
          toast("The budget was removed.");
        }}
      >
        This budget then no longer warns you and no longer stops jobs. Other budgets, such as those of single jobs, still apply.
      </ConfirmDialog>
    </Card>
  );
}

const MARKS = [50, 80] as const;

/** How much of a budget is spent, with marks where one is warned. */
export function BudgetBar({ label, spent, limit }: { label: string; spent: number; limit: number }) {
  const percent = limit > 0 ? Math.min(100, (spent / limit) * 100) : 100;
  return (
    <div role="progressbar" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(percent)} className="relative h-2 rounded-full bg-white/9">
      <div
        className={cn("h-full rounded-full transition-[width] duration-250 ease-out", percent >= 100 ? "bg-danger" : percent >= 80 ? "bg-warning" : "bg-teal")}
        style={{ width: `${percent}%` }}
      />
      {MARKS.map((mark) => (
        <span key={mark} aria-hidden className="absolute inset-y-0 w-px bg-white/45" style={{ left: `${mark}%` }} />
      ))}
    </div>
  );
}

/** Means all jobs of a person; the other values are ids of projects. */
const MINE = "";

const rules = z.object({
  of: z.string(),
  limit: numberRule(BudgetIn.limit).pipe(z.number("Enter an amount, such as 50.")),
  period: z.enum(BudgetIn.period.enum),
});

const PERIOD_CHOICES = [
  ["month", "per month"],
  ["total", "in total"],
] as const;

function BudgetDialog({ budget, onClose }: { budget: Budget | null; onClose: () => void }) {
  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} title={budget ? "Change the budget" : "Set a budget"} description="At the limit, jobs save a checkpoint and stop. You can resume them after the budget is raised or a new month starts.">
      <BudgetForm budget={budget} onClose={onClose} />
    </Dialog>
  );
}

function BudgetForm({ budget, onClose }: { budget: Budget | null; onClose: () => void }) {
  const projects = useQuery(projectsQuery({ limit: 100 }));
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { of: budget?.project_id ?? MINE, limit: budget ? String(budget.limit) : "", period: budget?.period ?? "month" },
    submit: async ({ of, limit, period }) => {
      const whose = budget?.job_id ? ({ scope: "job", job_id: budget.job_id } as const) : of === MINE ? ({ scope: "user" } as const) : ({ scope: "project", project_id: of } as const);
      await setBudget({ ...whose, limit, period });
      toast("The budget is set.");
      onClose();
    },
  });
  const whose = [[MINE, "All my jobs"] as const, ...(projects.data?.items ?? []).map(({ id, name }) => [id, name] as const)];
  return (
    <ApiForm label="Budget" failure={failure} onSubmit={onSubmit}>
      {budget === null && <SelectField label="Applies to" options={whose} {...field("of")} />}
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField label="Amount, in US dollars" inputMode="decimal" autoComplete="off" placeholder="50" {...field("limit")} />
        <SelectField label="Period" options={PERIOD_CHOICES} {...field("period")} />
      </div>
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          {budget ? "Save" : "Set budget"}
        </Button>
      </div>
    </ApiForm>
  );
}

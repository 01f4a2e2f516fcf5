import { useQuery } from "@tanstack/react-query";
import { projectsQuery } from "@/api/projects";
import { type Budget, setBudget } from "@/api/providers";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { toast } from "@/components/toasts";
import { ApiForm } from "@/forms/api-form";
import { decimal } from "@/forms/number-rules";
import { SelectField, TextField } from "@/forms/text-field";
import { useApiForm } from "@/forms/use-api-form";
import { z } from "@/forms/zod";

/** Stands for all jobs of a person, beside the ids of projects. */
const MINE = "";

const rules = z.object({
  of: z.string(),
  limit: decimal({ above: 0, most: 1_000_000 }).pipe(z.number("Enter an amount, such as 50.")),
  period: z.enum(["month", "total"]),
});

const PERIODS = [
  ["month", "every month"],
  ["total", "in all"],
] as const;

export function BudgetDialog({ budget, onClose }: { budget: Budget | null; onClose: () => void }) {
  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} title={budget ? "Change the budget" : "Set a budget"} description="At the limit, jobs save a checkpoint and end. They can go on when there is money again.">
      <BudgetForm budget={budget} onClose={onClose} />
    </Dialog>
  );
}

function BudgetForm({ budget, onClose }: { budget: Budget | null; onClose: () => void }) {
  const projects = useQuery(projectsQuery({ limit: 100 }));
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { of: budget?.projectId ?? MINE, limit: budget ? String(budget.limit) : "", period: budget?.period ?? "month" },
    submit: async ({ of, limit, period }) => {
      const whose = budget?.jobId ? ({ scope: "job", jobId: budget.jobId } as const) : of === MINE ? ({ scope: "user" } as const) : ({ scope: "project", projectId: of } as const);
      await setBudget({ ...whose, limit, period });
      toast("The budget is set.");
      onClose();
    },
  });
  const whose = [[MINE, "All my jobs"] as const, ...(projects.data?.items ?? []).map(({ id, name }) => [id, name] as const)];
  return (
    <ApiForm label="Budget" failure={failure} onSubmit={onSubmit}>
      {budget === null && <SelectField label="For" options={whose} {...field("of")} />}
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField label="Amount, in US dollars" inputMode="decimal" autoComplete="off" placeholder="50" {...field("limit")} />
        <SelectField label="Counts" options={PERIODS} {...field("period")} />
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

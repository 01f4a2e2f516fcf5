import type { ReactNode } from "react";
import { useFormContext } from "react-hook-form";
import type { PlanRequest } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { ChoiceCards } from "@/forms/choice-cards";
import { CONFIG_GROUPS, type ConfigField, withAdapters } from "@/forms/job-fields";
import type { JobFormValues } from "@/forms/job-rules";
import { ConfigFields, OneField, useConfigValues, useFieldError } from "@/pages/new-job/config-fields";
import { ConfigAccordion } from "@/pages/new-job/config-accordion";
import { BackendField } from "./backend-field";
import { useMethodCards } from "./use-method-cards";

const [EPOCHS, RATE, BATCH] = CONFIG_GROUPS.training;
const LENGTH: ConfigField = { ...CONFIG_GROUPS.sizes[5], label: "Longest example", help: "In tokens." };

type FinetuneFieldsProps = { request: PlanRequest; complete: boolean; finder: ReactNode };

/** How it is trained: what people decide is in sight, the rest is folded away. */
export function FinetuneFields({ request, complete, finder }: FinetuneFieldsProps) {
  const { register } = useFormContext<JobFormValues>();
  const error = useFieldError();
  const values = useConfigValues();
  const cards = useMethodCards(request, complete);
  return (
    <Card>
      <CardHeader title="Method" />
      <div className="grid gap-3.5">
        <ChoiceCards label="What is trained" registration={register("config.method" as keyof JobFormValues)} options={cards} error={error("config.method")} />
        <div className="grid grid-cols-2 items-start gap-3.5 sm:grid-cols-4">
          <OneField field={EPOCHS} />
          <OneField field={RATE} />
          <OneField field={BATCH} help="Rows at a time." />
          <OneField field={LENGTH} />
        </div>
        {finder}
        {withAdapters(values) && (
          <div className="grid grid-cols-2 items-start gap-3.5 sm:grid-cols-4">
            <ConfigFields group="adapters" />
          </div>
        )}
      </div>
      <ConfigAccordion title="Examples: what is trained, packing, held-out share" group="examples">
        <ConfigFields group="examples" />
      </ConfigAccordion>
      <ConfigAccordion title="Optimizer and schedule" group="optimizer">
        <ConfigFields group="optimizer" />
      </ConfigAccordion>
      <ConfigAccordion title="Engine: memory, precision, processes" group="engine">
        <ConfigFields group="engine" />
      </ConfigAccordion>
      <ConfigAccordion title="Checkpoints and evaluation" group="saving">
        <ConfigFields group="saving" />
      </ConfigAccordion>
      <ConfigAccordion title="Backend" group="backend">
        <BackendField />
      </ConfigAccordion>
    </Card>
  );
}

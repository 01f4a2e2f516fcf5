import { useQuery } from "@tanstack/react-query";
import { useFormContext, useWatch } from "react-hook-form";
import { backendsQuery } from "@/api/backends";
import { Select } from "@/components/select";
import { Field } from "@/forms/field";
import { CONFIG_GROUPS } from "@/forms/job-fields";
import type { JobFormValues } from "@/forms/job-rules";
import { useFieldError } from "@/pages/new-job/config-fields";

const [FIELD] = CONFIG_GROUPS.backend;

/** What trains. One that cannot run here can be chosen too: then it says why not, and what to do. */
export function BackendField() {
  const backends = useQuery(backendsQuery);
  const { register } = useFormContext<JobFormValues>();
  const error = useFieldError();
  const config = useWatch<JobFormValues, "config">({ name: "config" });
  const chosen = backends.data?.find(({ name }) => name === (config.backend || "engine"));
  const options = FIELD.options.map(([name, text]) => {
    const known = backends.data?.find((backend) => backend.name === name);
    return [name, known && !known.available ? `${text}, not here` : text] as const;
  });
  return (
    <Field label={FIELD.label} error={error("config.backend") ?? (chosen?.available === false ? (chosen.reason ?? undefined) : undefined)} help={chosen?.brings} className="sm:col-span-2 xl:col-span-3">
      {(control) => <Select options={options} {...register("config.backend" as keyof JobFormValues)} {...control} />}
    </Field>
  );
}

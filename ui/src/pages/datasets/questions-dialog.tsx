/** Orders question-answer pairs about passages: which model writes them, and what it may cost at most. */
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { MessageCircleQuestionMark } from "lucide-react";
import { useState } from "react";
import { useWatch } from "react-hook-form";
import { estimateQuery, orderQuestions } from "@/api/datasets";
import { playgroundsQuery } from "@/api/playground";
import { QuestionsIn } from "@/api/request-fields";
import { secretsQuery } from "@/api/secrets";
import type { Dataset, QuestionsEstimate } from "@/api/types";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { LoadFailure } from "@/components/loaded";
import { toast } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { SelectField, TextField } from "@/forms/field";
import { numberMistake, numberRule, parseNumber, textRule } from "@/forms/rules";
import { z } from "@/forms/zod";
import { countText, counted } from "@/text/numbers";

type NumberName = "pairs" | "most_passages" | "max_answer_tokens" | "most_tokens";

const orDefault = (name: NumberName) => numberRule(QuestionsIn[name]).transform((value) => value ?? QuestionsIn[name].default);

const rules = z
  .object({
    where: z.string(),
    endpoint: textRule(QuestionsIn.endpoint),
    model: textRule(QuestionsIn.model).min(1, "Choose or enter a model."),
    secret: z.string(),
    pairs: orDefault("pairs"),
    most_passages: orDefault("most_passages"),
    max_answer_tokens: orDefault("max_answer_tokens"),
    most_tokens: orDefault("most_tokens"),
  })
  .refine(({ where, endpoint }) => where === "playground" || endpoint !== "", { path: ["endpoint"], message: "Enter the address, such as https://api.example.com/v1." });

export function QuestionsButton({ dataset, passages }: { dataset: Dataset; passages: number }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button size="small" variant="primary" onClick={() => setOpen(true)}>
        <MessageCircleQuestionMark aria-hidden />
        Write questions
      </Button>
      <Dialog
        open={open}
        onOpenChange={setOpen}
        title="Write questions about the passages"
        description="A model reads each passage and writes question-answer pairs, which become a dataset of their own. Every pair keeps its source."
        className="max-w-2xl"
      >
        <QuestionsForm dataset={dataset} passages={passages} onDone={() => setOpen(false)} />
      </Dialog>
    </>
  );
}

function QuestionsForm({ dataset, passages, onDone }: { dataset: Dataset; passages: number; onDone: () => void }) {
  const navigate = useNavigate();
  const secrets = useQuery(secretsQuery(null));
  const playgrounds = useQuery(playgroundsQuery);
  const { form, field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { where: "endpoint", endpoint: "", model: "", secret: "", pairs: "", most_passages: "", max_answer_tokens: "", most_tokens: "" },
    submit: async ({ where, endpoint, secret, ...values }) => {
      const remote = where === "endpoint";
      const made = await orderQuestions(dataset.id, { ...values, endpoint: remote ? endpoint : null, secret: (remote && secret) || null });
      onDone();
      toast("The model is writing questions.");
      await navigate({ to: "/datasets/$datasetId", params: { datasetId: made.id } });
    },
  });
  const [where, pairs, most, answer, tokens] = useWatch({ control: form.control, name: ["where", "pairs", "most_passages", "max_answer_tokens", "most_tokens"] });
  const asked = { pairs: valid("pairs", pairs), most_passages: valid("most_passages", most), max_answer_tokens: valid("max_answer_tokens", answer), most_tokens: valid("most_tokens", tokens) };
  const estimate = useQuery(estimateQuery(dataset.id, asked));
  const names = (secrets.data?.items ?? []).map(({ name }) => [name, name] as const);
  const loaded = (playgrounds.data?.items ?? []).map(({ job }) => [job.id, job.name] as const);
  return (
    <ApiForm label="Write questions" failure={failure} onSubmit={onSubmit}>
      <SelectField
        label="Written by"
        options={[["endpoint", "An OpenAI-compatible endpoint"] as const, ["playground", "A model in the playground of this server"] as const]}
        // A model of one place is unknown at the other.
        registration={form.register("where", { onChange: () => form.resetField("model") })}
      />
      {where === "endpoint" ? (
        <>
          <TextField label="Endpoint" placeholder="https://api.example.com/v1" autoComplete="off" spellCheck={false} {...field("endpoint")} />
          <div className="grid gap-4 sm:grid-cols-2">
            <TextField label="Model" autoComplete="off" spellCheck={false} {...field("model")} />
            <SelectField
              label="API key"
              options={[["", "None"] as const, ...names]}
              help={
                <>
                  One of your secrets.{" "}
                  <Link to="/settings" search={{ tab: "tokens" }} className="text-violet-soft underline underline-offset-2">
                    Store a key
                  </Link>
                </>
              }
              {...field("secret")}
            />
          </div>
        </>
      ) : (
        <SelectField
          label="Model"
          options={[["", loaded.length > 0 ? "Choose a model…" : "No model is loaded"] as const, ...loaded]}
          help={loaded.length === 0 ? "Open a model in the playground first." : undefined}
          {...field("model")}
        />
      )}
      <LoadFailure query={where === "endpoint" ? secrets : playgrounds} />
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField label="Pairs per passage" inputMode="numeric" placeholder={String(QuestionsIn.pairs.default)} {...field("pairs")} />
        <TextField label="Most passages" inputMode="numeric" placeholder={countText(QuestionsIn.most_passages.default)} help={`Of ${countText(passages)}, spread evenly.`} {...field("most_passages")} />
        <TextField label="Tokens per answer" inputMode="numeric" placeholder={countText(QuestionsIn.max_answer_tokens.default)} {...field("max_answer_tokens")} />
        <TextField label="Most tokens" inputMode="numeric" placeholder={countText(QuestionsIn.most_tokens.default)} help="The order stops before it uses more." {...field("most_tokens")} />
      </div>
      {estimate.data && <Estimate estimate={estimate.data} />}
      <div className="flex justify-end gap-2">
        <Button onClick={onDone}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Start writing
        </Button>
      </div>
    </ApiForm>
  );
}

/** What is typed, where it is valid: the estimate follows it. */
function valid(name: NumberName, text: string): number {
  const value = numberMistake(text, QuestionsIn[name]) === null ? parseNumber(text) : null;
  return value ?? QuestionsIn[name].default;
}

function Estimate({ estimate }: { estimate: QuestionsEstimate }) {
  return (
    <div role="status" aria-label="Cost" className="rounded-control border border-line bg-rail px-3 py-2 text-sm">
      <p>
        {counted(estimate.passages, "request")} for up to {counted(estimate.pairs, "pair")}: at most {countText(estimate.tokens)} tokens.
      </p>
      <p className="mt-0.5 text-dim">
        About {countText(estimate.input_tokens)} tokens of passages, at most {countText(estimate.answer_tokens)} of answers.
        {estimate.limited && " The token limit may end it before all passages are asked; it can be continued."}
      </p>
    </div>
  );
}

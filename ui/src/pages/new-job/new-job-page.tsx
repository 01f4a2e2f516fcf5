/** The form for training from scratch. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { serverQuery } from "@/api/account";
import { queryClient } from "@/api/client";
import { TrainConfig } from "@/api/config-fields";
import { datasetQuery } from "@/api/datasets";
import { projectQuery } from "@/api/projects";
import type { Job, Project } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { Loaded } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { applies, choiceText, CONFIG_GROUPS, type ConfigValues, fieldsOf, isPretrained, type Json, ofFolder, presetOptions, valueAt, withAdapters } from "@/forms/job-fields";
import { datasetIdOf, jobRules, likeJob, NEW_PROJECT, startingValues, withValue } from "@/forms/job-form";
import { DataFolders } from "@/forms/training-data-field";
import { PagePending } from "@/shell/page";
import { modelSizeText } from "@/text/numbers";
import { CardsField, ConfigAccordion, ConfigFields, OneField, TrainingAccordions, useConfigValues } from "./config-fields";
import { ConfigTabs, JobCard, JobFrame } from "./job-frame";
import { LikeAnother, NewJobCrumbs } from "./new-job-header";
import { useJobForm } from "./use-job-form";
import { WhereCard } from "./where-card";

const route = getRouteApi("/app/projects/$projectId/jobs/new");

const TOKENIZER = TrainConfig["data.tokenizer.kind"].default;

export function NewJobInProjectPage() {
  const { projectId } = route.useParams();
  const { like } = route.useSearch();
  const project = useQuery(projectQuery(projectId));
  return (
    <Loaded query={project} skeleton={<PagePending />}>
      {(loaded) => <LikeAnother id={like}>{(job) => <NewJob project={loaded} like={job} />}</LikeAnother>}
    </Loaded>
  );
}

export const NewJobPage = () => <NewJob />;

function NewJob({ project, like }: { project?: Project; like?: Job }) {
  const start = startOf(project, like);
  const job = useJobForm({
    values: startingValues(project?.id ?? NEW_PROJECT, start),
    config: start.config,
    rules: jobRules,
    missing: ({ config, project: id }) => {
      const { modelArchitecture } = project ?? queryClient.getQueryData(projectQuery(id).queryKey) ?? {};
      return modelArchitecture === "custom" && needsArchitecture(config) ? "Choose an architecture of a plug-in or a model folder, or run your own script." : null;
    },
  });
  const chosen = job.values.project;
  const other = useQuery({ ...projectQuery(chosen), enabled: !project && chosen !== NEW_PROJECT });
  const of = project ?? other.data;
  useProjectModel(project ? undefined : other.data, job.draft?.values.project, job.change);
  return (
    <JobFrame
      title="New training job"
      crumbs={<NewJobCrumbs project={project} />}
      projectId={project?.id}
      job={job}
      lead={
        <>
          <JobCard form={job.form} inProject={project !== undefined} usualName={project?.name ?? "the project’s name"} />
          {of?.modelArchitecture === "custom" && <CustomNotice projectId={of.id} />}
        </>
      }
    >
      <ConfigTabs job={job} title="Model and data">
        <ModelConfig project={of ?? null} />
      </ConfigTabs>
      {job.mode === "form" && <TrainingCard />}
      <WhereCard answer={job.planned.answer.data} onTake={job.setRental} />
    </JobFrame>
  );
}

/** What the form starts with: another job, and the preset of the project's size where no model is named. */
function startOf(project?: Project, like?: Job): ReturnType<typeof likeJob> {
  const start = like ? likeJob(like) : { config: {} };
  const preset = project?.modelPreset?.name;
  const named = start.model_id !== undefined || ["preset", "path", "hidden_size", "layers"].some((name) => valueAt(start.config, `model.${name}`) !== undefined);
  // What the server takes anyway is not said.
  if (!preset || named || preset === TrainConfig["model.preset"].default) return start;
  return { ...start, config: withValue(start.config, "model.preset", preset) };
}

/** The model of a project that is chosen in the form. `restored`: a project whose model has been looked at before. */
function useProjectModel(project: Project | undefined, restored: string | undefined, change: (changes: Json) => void) {
  const preset = project?.modelPreset?.name;
  const known = useRef(restored);
  useEffect(() => {
    if (project !== undefined && project.id === known.current) return;
    known.current = undefined;
    if (preset !== undefined) change({ "model.preset": preset });
    // Only when another project is chosen: later it is the person's choice.
    // oxlint-disable-next-line react/exhaustive-deps
  }, [project?.id]);
}

const needsArchitecture = (config: ConfigValues) => !ofFolder(config) && valueAt(config, "model.architecture") === "";

function CustomNotice({ projectId }: { projectId: string }) {
  return (
    <Notice tone="plain" className="text-sm">
      This project has a custom architecture. Choose an architecture that a plug-in of this server brings, under Model and data, or{" "}
      <Link to="/script" search={{ project: projectId }}>
        run your own script
      </Link>
      .
    </Notice>
  );
}

/** What is trained: usual decisions are visible, the rest is in a closed accordion. */
function ModelConfig({ project }: { project: Project | null }) {
  const values = useConfigValues();
  return (
    <>
      <div className="mb-3.5 grid gap-3.5 sm:grid-cols-2">
        <ModelDataFields project={project} />
      </div>
        <ConfigAccordion
          title="Custom model sizes"
          group="sizes"
          parts={[["model.context_length", (value) => `max sequence length ${value}`]]}
        >
          <ConfigFields group="sizes" />
          {ofFolder(values) && <ConfigFields group="positions" />}
        </ConfigAccordion>
    </>
  );
}

/** How it is trained. */
function TrainingCard() {
  const values = useConfigValues();
  return (
    <Card>
      <CardHeader title="Training" />
      <div className="mb-3.5 grid gap-3.5">
        <MethodFields />
        <div className="grid grid-cols-2 gap-3.5 sm:grid-cols-4">
          {fieldsOf("training", values).map((field) => (
            <OneField key={field.path} field={field} compact />
          ))}
        </div>
      </div>
      <TrainingAccordions />
    </Card>
  );
}

function MethodFields() {
  const values = useConfigValues();
  const [method] = CONFIG_GROUPS.method;
  const adapters = withAdapters(values);
  const frozenNoise = adapters && !ofFolder(values);
  return (
    <>
      <CardsField field={method} help={frozenNoise ? "LoRA and QLoRA need a pretrained model, but a preset starts with random weights. Under Model, choose “Model folder…”." : undefined} />
      {adapters && (
        <div className="grid gap-3.5 sm:grid-cols-3">
          <ConfigFields group="adapters" />
        </div>
      )}
    </>
  );
}

/** Where the text lies, and the model. Without a path, the project's own data is used, or else the text of the demo. */
function ModelDataFields({ project }: { project: Project | null }) {
  const values = useConfigValues();
  const projectPath = project?.trainingDataPath ?? null;
  const datasetId = datasetIdOf(projectPath);
  const dataset = useQuery({ ...datasetQuery(datasetId ?? ""), enabled: datasetId !== null });
  const [data] = CONFIG_GROUPS.data;
  const [model, tokenizer] = CONFIG_GROUPS.model;
  const [folder, firstWeights, tokenizerFile] = CONFIG_GROUPS.folder;
  const pretrained = isPretrained(values, false);
  const automatic = valueAt(values, "data.tokenizer.kind") === "";
  return (
    <>
      <OneField
        field={data}
        fieldClassName="sm:col-span-2"
        placeholder={datasetId ? (dataset.data?.name ?? "the project’s dataset") : (projectPath ?? "built-in text of the demo")}
        help={
          <>
            A file, a folder or a glob pattern
            <DataFolders before=", inside " />.{datasetId ? " If empty, the project’s dataset is used." : projectPath && " If empty, the project’s data is used."}
          </>
        }
      />
      <OneField
        field={model}
        options={presetOptions(model.options ?? [], String(valueAt(values, model.path) ?? ""), project?.modelPreset)}
        help={project?.modelPreset ? `The project’s model size is ${modelSizeText(project.modelSize)} parameters.` : undefined}
      />
      <ArchitectureField custom={project?.modelArchitecture === "custom"} />
      <OneField field={tokenizer} help={tokenizerHelp(automatic, pretrained)} />
      {applies(folder, values) && (
        <>
          <OneField
            field={folder}
            placeholder="models/my-model"
            help={
              <>
                A folder in Hugging Face format
                <DataFolders before=", inside " />.
              </>
            }
          />
          <OneField field={firstWeights} />
        </>
      )}
      {applies(tokenizerFile, values) && <OneField field={tokenizerFile} fieldClassName="sm:col-span-2" placeholder="models/my-model/tokenizer.json" />}
    </>
  );
}

/** Who computes the layers: the engine's own transformer, or a plug-in. Absent where there is nothing to choose. */
function ArchitectureField({ custom }: { custom: boolean }) {
  const server = useQuery(serverQuery);
  const values = useConfigValues();
  const [architecture] = CONFIG_GROUPS.architecture;
  const installed = server.data?.architectures ?? [];
  if (!applies(architecture, values) || (installed.length === 0 && !custom)) return null;
  const none = custom ? (installed.length > 0 ? "Choose…" : "No plug-in is installed") : "Transformer (built in)";
  return (
    <OneField
      field={architecture}
      options={[["", none] as const, ...installed.map((name) => [name, name] as const)]}
      help={installed.length > 0 ? "It gets the sizes of this model. Its own options are in the JSON, under model.options." : "An operator installs plug-ins with pip on the server; docs/plugins.md says how to write one."}
    />
  );
}

function tokenizerHelp(automatic: boolean, pretrained: boolean): string | undefined {
  if (automatic) return pretrained ? "Uses the tokenizer in the model’s folder." : `Uses: ${choiceText("data.tokenizer.kind", TOKENIZER)}.`;
  return pretrained ? "Pretrained weights work only with the model’s own tokenizer." : undefined;
}

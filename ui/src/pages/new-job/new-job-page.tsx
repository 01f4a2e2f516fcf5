/** The form for training from scratch. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { serverQuery } from "@/api/account";
import { TrainConfig } from "@/api/config-fields";
import { projectQuery } from "@/api/projects";
import type { Job, Project } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { Loaded } from "@/components/loaded";
import { applies, choiceText, CONFIG_GROUPS, isPretrained, ofFolder, valueAt, withAdapters } from "@/forms/job-fields";
import { jobRules, likeJob, NEW_PROJECT, startingValues } from "@/forms/job-form";
import { PagePending } from "@/shell/page";
import { CardsField, ConfigAccordion, ConfigFields, OneField, TrainingAccordions, useConfigValues } from "./config-fields";
import { ConfigTabs, JobCard, JobFrame } from "./job-frame";
import { LikeAnother, NewJobCrumbs } from "./new-job-header";
import { useJobForm } from "./use-job-form";

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
  const start = like ? likeJob(like) : { config: {} };
  const job = useJobForm({ values: startingValues(project?.id ?? NEW_PROJECT, start), config: start.config, rules: jobRules });
  const chosen = job.values.project;
  const other = useQuery({ ...projectQuery(chosen), enabled: !project && chosen !== NEW_PROJECT });
  return (
    <JobFrame title="New training job" crumbs={<NewJobCrumbs project={project} />} projectId={project?.id} job={job}>
      <JobCard form={job.form} inProject={project !== undefined} usualName={project?.name ?? "the project’s name"} />
      <ConfigTabs job={job}>
        <StructuredConfig projectPath={(project ?? other.data)?.trainingDataPath ?? null} />
      </ConfigTabs>
    </JobFrame>
  );
}

/** The config as a form: usual decisions are visible, the rest is in closed accordions. */
export function StructuredConfig({ projectPath }: { projectPath: string | null }) {
  return (
    <>
      <Card>
        <CardHeader title="Model and data" />
        <div className="grid gap-3.5 sm:grid-cols-2">
          <ModelDataFields projectPath={projectPath} />
        </div>
        <ConfigAccordion title="Custom model sizes" group="sizes">
          <ConfigFields group="sizes" />
        </ConfigAccordion>
      </Card>
      <Card>
        <CardHeader title="Training" />
        <div className="grid gap-3.5">
          <MethodFields />
          <div className="grid grid-cols-2 gap-3.5 sm:grid-cols-4">
            <ConfigFields group="training" />
          </div>
        </div>
        <TrainingAccordions />
      </Card>
    </>
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
export function ModelDataFields({ projectPath }: { projectPath: string | null }) {
  const values = useConfigValues();
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
        placeholder={projectPath ?? "built-in text of the demo"}
        help={
          <>
            A file, a folder or a glob pattern
            <Folders />.{projectPath && " If empty, the project’s data is used."}
          </>
        }
      />
      <OneField field={model} />
      <OneField field={tokenizer} help={tokenizerHelp(automatic, pretrained)} />
      {applies(folder, values) && (
        <>
          <OneField
            field={folder}
            placeholder="models/my-model"
            help={
              <>
                A folder in Hugging Face format
                <Folders />.
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

function tokenizerHelp(automatic: boolean, pretrained: boolean): string | undefined {
  if (automatic) return pretrained ? "Uses the tokenizer in the model’s folder." : `Uses: ${choiceText("data.tokenizer.kind", TOKENIZER)}.`;
  return pretrained ? "Pretrained weights work only with the model’s own tokenizer." : undefined;
}

/** Where this server may read. */
function Folders() {
  const server = useQuery(serverQuery);
  const folders = server.data ? [server.data.uploads_folder, ...server.data.data_roots].filter((folder) => folder !== null) : [];
  if (folders.length === 0) return null;
  return (
    <>
      , inside{" "}
      {folders.map((folder, index) => (
        <span key={folder}>
          {index > 0 && " or "}
          <code className="font-mono text-[11px] break-all text-dim">{folder}</code>
        </span>
      ))}
    </>
  );
}

import { Card, CardHeader } from "@/components/card";
import { CONFIG_GROUPS, ofFolder, withAdapters } from "@/forms/job-fields";
import { CardsField, ConfigFields, useConfigValues } from "./config-fields";
import { ConfigAccordion } from "./config-accordion";
import { ModelDataFields } from "./model-data-fields";

/** The config as a form: what people decide is in sight, what they usually leave alone is folded away. */
export function StructuredConfig({ projectPath }: { projectPath: string | null }) {
  return (
    <>
      <Card>
        <CardHeader title="Model and data" />
        <div className="grid gap-3.5 sm:grid-cols-2">
          <ModelDataFields projectPath={projectPath} />
        </div>
        <ConfigAccordion title="Sizes that differ from the model above" group="sizes">
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
        <ConfigAccordion title="Optimizer and schedule" group="optimizer">
          <ConfigFields group="optimizer" />
        </ConfigAccordion>
        <ConfigAccordion title="Engine: memory, precision, processes" group="engine">
          <ConfigFields group="engine" />
        </ConfigAccordion>
        <ConfigAccordion title="Checkpoints and evaluation" group="saving">
          <ConfigFields group="saving" />
        </ConfigAccordion>
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
      <CardsField field={method} help={frozenNoise ? "A preset begins with random weights, and adapters leave them as they are: choose a model folder that has learned something." : undefined} />
      {adapters && (
        <div className="grid gap-3.5 sm:grid-cols-3">
          <ConfigFields group="adapters" />
        </div>
      )}
    </>
  );
}

import { useQuery } from "@tanstack/react-query";
import { serverQuery } from "@/api/account";
import { CONFIG_GROUPS, applies, ofFolder, valueAt } from "@/forms/job-fields";
import { OneField, useConfigValues } from "./config-fields";

/** Where the text lies, and the model. Without a path, the project's own data is used, or else the text of the demo. */
export function ModelDataFields({ projectPath }: { projectPath: string | null }) {
  const values = useConfigValues();
  const [data] = CONFIG_GROUPS.data;
  const [model, tokenizer] = CONFIG_GROUPS.model;
  const [folder, firstWeights, tokenizerFile] = CONFIG_GROUPS.folder;
  const hasLearned = ofFolder(values) && valueAt(values, "model.random_weights") !== "true";
  const automatic = valueAt(values, "data.tokenizer.kind") === "";
  return (
    <>
      <OneField
        field={data}
        fieldClassName="sm:col-span-2"
        placeholder={projectPath ?? "text that every machine has, as in the demo"}
        help={
          <>
            {projectPath && "Empty: the project’s data. "}A file, a folder or a pattern
            <Folders />.
          </>
        }
      />
      <OneField field={model} />
      <OneField field={tokenizer} help={tokenizerHelp(automatic, hasLearned)} />
      {applies(folder, values) && (
        <>
          <OneField
            field={folder}
            placeholder="models/my-model"
            help={
              <>
                As Hugging Face lays it out
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

function tokenizerHelp(automatic: boolean, hasLearned: boolean): string | undefined {
  if (automatic) return hasLearned ? "The one in the model’s folder." : "Bytes.";
  return hasLearned ? "The model’s weights know the tokens of its own tokenizer only." : undefined;
}

/** Where this server may read. */
function Folders() {
  const server = useQuery(serverQuery);
  const folders = server.data ? [server.data.uploadsFolder, ...server.data.dataRoots] : [];
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

import { useQuery } from "@tanstack/react-query";
import { serverQuery } from "@/api/account";
import { CONFIG_GROUPS } from "@/forms/job-config";
import { OneField } from "./config-fields";

/** Where the text lies. Left empty, the project's own data is used, or else the text of the demo. */
export function DataFields({ projectPath }: { projectPath: string | null }) {
  const server = useQuery(serverQuery);
  const [path, tokenizer] = CONFIG_GROUPS.data;
  const folders = server.data ? [server.data.uploadsFolder, ...server.data.dataRoots] : [];
  return (
    <>
      <OneField
        field={path}
        fieldClassName="sm:col-span-2"
        placeholder={projectPath ?? "text that every machine has, as in the demo"}
        help={
          <>
            {projectPath && "Empty: the project’s data. "}A file, a folder or a pattern
            {folders.length > 0 && " inside "}
            {folders.map((folder, index) => (
              <span key={folder}>
                {index > 0 && " or "}
                <code className="font-mono text-[11px] break-all text-dim">{folder}</code>
              </span>
            ))}
            .
          </>
        }
      />
      <OneField field={tokenizer} />
    </>
  );
}

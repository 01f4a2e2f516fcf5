import { CopyButton } from "./copy-button";

/** A command to type into a terminal. */
export function CommandLine({ command }: { command: string }) {
  return (
    <div className="flex items-center gap-3 rounded-control border border-line bg-rail py-1.5 pr-1.5 pl-3 text-left">
      <code className="min-w-0 flex-1 font-mono text-xs break-words text-[#c3cad5]">
        <span aria-hidden className="text-teal-soft select-none">
          ${" "}
        </span>
        {command}
      </code>
      <CopyButton text={command} label={`Copy the command ${command}`} />
    </div>
  );
}

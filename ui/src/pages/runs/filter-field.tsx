/** The filter of the run list: a line of text whose parts have colours, with the number of runs or the error. */
import { ListFilter, X } from "lucide-react";
import { useId, useRef } from "react";
import { cn } from "@/components/class-names";
import { useTypedText } from "@/components/input";
import { filterTokens } from "./run-words";

const COLOURS = { field: "text-teal-soft", word: "text-violet-soft", value: "text-warning", mark: "text-text", space: "" } as const;
const PAUSE = 350;

type FilterFieldProps = {
  text: string;
  onChange: (text: string) => void;
  /** Such as "19 runs"; empty while it is not known. */
  found: string;
  problem: string | null;
  /** Names of columns, offered while somebody types. */
  columns: readonly string[];
};

export function FilterField({ text, onChange, found, problem, columns }: FilterFieldProps) {
  const { typed: draft, setTyped: setDraft, send } = useTypedText(text, PAUSE, onChange);
  const shown = useRef<HTMLPreElement>(null);
  const id = useId();

  return (
    <div className="min-w-0 flex-1">
      <div className={cn("flex h-9.5 items-center gap-2 rounded-control border bg-rail pr-1 pl-3 focus-within:ring-3 max-sm:h-11", problem ? "border-danger/60 focus-within:ring-danger/30" : "border-line-strong focus-within:border-violet-bright focus-within:ring-violet/35")}>
        <ListFilter aria-hidden className="size-4 shrink-0 text-dim" />
        <div className="relative h-full min-w-0 flex-1 font-mono text-sm">
          <pre ref={shown} aria-hidden className="pointer-events-none absolute inset-0 flex items-center overflow-hidden font-mono whitespace-pre">
            <span>
              {filterTokens(draft).map((token, index) => (
                <span key={index} className={COLOURS[token.kind]}>
                  {token.text}
                </span>
              ))}
            </span>
          </pre>
          <input
            aria-label="Filter runs"
            aria-invalid={problem !== null}
            aria-describedby={problem ? `${id}-problem` : undefined}
            value={draft}
            placeholder="lr > 1e-4 and status = failed"
            spellCheck={false}
            autoComplete="off"
            list={`${id}-columns`}
            onChange={(event) => setDraft(event.target.value)}
            onKeyDown={(event) => event.key === "Enter" && send(draft)}
            onScroll={(event) => shown.current && (shown.current.scrollLeft = event.currentTarget.scrollLeft)}
            className="absolute inset-0 w-full bg-transparent p-0 font-mono text-sm text-transparent caret-white outline-none placeholder:text-faint max-sm:text-sm [&::-webkit-calendar-picker-indicator]:hidden!"
          />
        </div>
        {found && !problem && <span className="mr-2 shrink-0 text-xs whitespace-nowrap text-success-soft max-sm:hidden">{found}</span>}
        {draft !== "" && (
          <button type="button" aria-label="Clear the filter" className="grid size-7.5 shrink-0 place-items-center rounded-md text-dim hover:text-text" onClick={() => (setDraft(""), send(""))}>
            <X aria-hidden className="size-4" />
          </button>
        )}
      </div>
      <datalist id={`${id}-columns`}>
        {draft.trim() === "" && columns.map((name) => (
          <option key={name} value={`${name} `}>
            {name}
          </option>
        ))}
      </datalist>
      {problem && (
        <p id={`${id}-problem`} role="alert" className="mt-1.5 text-xs text-danger-soft">
          {problem}
        </p>
      )}
    </div>
  );
}

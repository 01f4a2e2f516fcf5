/** The log of a job: live lines, older lines, search. */
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { useFailure } from "@/api/client";
import { isResting, logSearchQuery, readLogs } from "@/api/jobs";
import type { Job } from "@/api/types";
import { Card } from "@/components/card";
import { cn } from "@/components/class-names";
import { SearchBox } from "@/components/input";
import { ErrorPanel } from "@/components/loaded";
import { countWrong, groupLines, type LogPiece } from "@/text/log-groups";
import { counted } from "@/text/numbers";

const EVERY = 2_000;
const MOST_LINES = 2_000;

/** `error`: why the last attempt to read failed; `retry` reads again at once. */
type Output = { lines: string[]; loaded: boolean; error: unknown; retry: () => void };

/** The end of a job's output, growing while it runs. After a failure it is read again until that works. */
export function useOutput(id: string, following: boolean) {
  const [output, setOutput] = useState<Output>({ lines: [], loaded: false, error: null, retry: () => {} });

  useEffect(() => {
    const request = new AbortController();
    let timer: ReturnType<typeof setTimeout>;
    let end: number | undefined;
    let reading = false;
    async function read() {
      let failed = false;
      reading = true;
      try {
        const part = await readLogs(id, end, request.signal);
        // The agent moves a full file aside and begins a new one: then so does this.
        const anew = end === undefined || part.start < end;
        end = part.end;
        setOutput((kept) => ({
          ...kept,
          lines: anew ? part.lines : part.lines.length === 0 ? kept.lines : [...kept.lines, ...part.lines].slice(-MOST_LINES),
          loaded: true,
          error: null,
        }));
      } catch (error) {
        if (request.signal.aborted) return;
        failed = true;
        setOutput((kept) => ({ ...kept, error, retry }));
      }
      reading = false;
      if ((following || failed) && !request.signal.aborted) timer = setTimeout(() => void read(), EVERY);
    }
    function retry() {
      if (reading) return;
      clearTimeout(timer);
      void read();
    }
    void read();
    return () => {
      request.abort();
      clearTimeout(timer);
    };
  }, [id, following]);

  return output;
}

export function OutputCard({ job }: { job: Job }) {
  const output = useOutput(job.id, !isResting(job.status));
  const [wanted, setWanted] = useState("");
  const [following, setFollowing] = useState(true);
  const matches = useQuery({ ...logSearchQuery(job.id, wanted), placeholderData: keepPreviousData });
  const lines = wanted === "" ? output.lines : matches.data?.lines;
  const pieces = useMemo(() => groupLines(lines ?? []), [lines]);
  const wrong = countWrong(pieces);
  const error = useFailure(wanted === "" ? output.error : matches.error);
  const waiting = wanted === "" ? !output.loaded : matches.isPending;

  return (
    <Card className="flex flex-col">
      <div className="mb-2.5 flex flex-wrap items-center gap-x-4 gap-y-2 [&>div]:mb-0 [&>div]:max-sm:w-full">
        <h2 className="mr-auto text-[13px] font-[590]">Output</h2>
        {wrong > 0 && <span className="text-xs text-danger-soft">{counted(wrong, "error")}</span>}
        <label className="flex items-center gap-1.5 text-xs text-dim">
          <input type="checkbox" checked={following} onChange={(event) => setFollowing(event.target.checked)} className="size-3.5 accent-violet" />
          Auto-scroll
        </label>
        <SearchBox label="Search the output" text={wanted} onSearch={setWanted} busy={wanted !== "" && matches.isFetching} />
      </div>
      {error !== null && (
        <div className="mb-2.5">
          <ErrorPanel error={error} pending={wanted !== "" && matches.isFetching} onRetry={wanted === "" ? output.retry : () => void matches.refetch()} />
        </div>
      )}
      <LogText pieces={pieces} following={following && wanted === ""} onScrollAway={() => setFollowing(false)} />
      {pieces.length === 0 && error === null && (
        <p className="-mt-16 mb-8 text-center text-sm text-dim">{waiting ? "Loading" : wanted ? "No line matches the search." : "No output yet."}</p>
      )}
      {matches.data?.more && wanted && <p className="mt-2 text-xs text-faint">Only the newest matching lines are shown.</p>}
    </Card>
  );
}

type LogTextProps = { pieces: LogPiece[]; following: boolean; onScrollAway: () => void };

function LogText({ pieces, following, onScrollAway }: LogTextProps) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (following && box.current) box.current.scrollTop = box.current.scrollHeight;
  });

  return (
    <div
      ref={box}
      role="log"
      aria-label="Job output"
      aria-live="off"
      // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable by keyboard
      tabIndex={0}
      onWheel={(event) => event.deltaY < 0 && following && onScrollAway()}
      className="h-[70dvh] min-h-80 overflow-auto rounded-control border border-line bg-rail px-3 py-2 font-mono text-xs leading-[1.65] text-code"
    >
      {pieces.map((piece, index) => (
        // Lines have no name of their own, and only ever join at the end.
        // oxlint-disable-next-line react/no-array-index-key
        <Piece key={index} piece={piece} />
      ))}
    </div>
  );
}

function Piece({ piece }: { piece: LogPiece }) {
  if (piece.kind === "line") {
    return <div className={cn("wrap-anywhere whitespace-pre-wrap", piece.wrong && "text-danger-soft", piece.warning && "text-warning")}>{piece.text || " "}</div>;
  }
  return (
    <details className="my-1 rounded-md border border-danger/35 bg-danger/8 px-2">
      <summary className="cursor-pointer wrap-anywhere text-danger-soft">{piece.title}</summary>
      <pre className="overflow-x-auto pb-1.5">{piece.lines.join("\n")}</pre>
    </details>
  );
}

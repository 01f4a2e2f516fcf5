import { useEffect, useState } from "react";
import { Button } from "@/components/button";
import { Notice } from "@/components/notice";
import { Spinner } from "@/components/spinner";
import { durationText } from "@/text/duration";
import type { SessionState } from "./use-session";

/** How far the model is on its way into memory; absent once it is there. */
export function SessionStrip({ state, onOpen }: { state: SessionState; onOpen: () => void }) {
  return (
    <div role="status" className="empty:hidden">
      {state.kind === "loading" && <Loading words={state.words} />}
      {state.kind === "unloaded" && (
        <Notice tone="attention" className="flex flex-wrap items-center gap-x-4 gap-y-2">
          <span className="min-w-0 flex-1 basis-56">
            <b className="mr-2 font-[570]">Unloaded.</b>
            <span className="text-dim">{state.reason} What was said stays here.</span>
          </span>
          <Button size="small" variant="primary" onClick={onOpen}>
            Load again
          </Button>
        </Notice>
      )}
      {state.kind === "failed" && (
        <Notice tone="bad" className="flex flex-wrap items-center gap-x-4 gap-y-2">
          <span className="min-w-0 flex-1 basis-56 break-words">
            <b className="mr-2 font-[570]">The model is not there.</b>
            <span className="text-dim">{state.problem}</span>
          </span>
          <Button size="small" onClick={onOpen}>
            Try again
          </Button>
        </Notice>
      )}
    </div>
  );
}

function Loading({ words }: { words: string }) {
  const [since] = useState(() => Date.now());
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const seconds = Math.floor((now - since) / 1000);
  return (
    <Notice className="flex items-center gap-3">
      <Spinner />
      <span>
        {words}
        {/* Not for screen readers: it would be read out every second. */}
        {seconds > 1 && <span aria-hidden className="ml-2 text-dim tabular-nums">{durationText(seconds)}</span>}
      </span>
    </Notice>
  );
}

import { useEffect, useState } from "react";
import { readLogs } from "@/api/logs";

const EVERY = 2_000;
const MOST_LINES = 2_000;

type Output = { lines: string[]; end: number | undefined; loaded: boolean };

/** The end of a job's output, growing while it runs. */
export function useOutput(id: string, following: boolean) {
  const [output, setOutput] = useState<Output>({ lines: [], end: undefined, loaded: false });

  useEffect(() => {
    const request = new AbortController();
    let timer: ReturnType<typeof setTimeout>;
    let end: number | undefined;
    async function read() {
      try {
        const part = await readLogs(id, end, request.signal);
        // The agent moves a full file aside and begins a new one: then so does this.
        const anew = end === undefined || part.start < end;
        end = part.end;
        setOutput((kept) => ({
          lines: anew ? part.lines : part.lines.length === 0 ? kept.lines : [...kept.lines, ...part.lines].slice(-MOST_LINES),
          end,
          loaded: true,
        }));
      } catch {
        // The next turn asks again; the page says elsewhere that the connection is lost.
      }
      if (following && !request.signal.aborted) timer = setTimeout(() => void read(), EVERY);
    }
    void read();
    return () => {
      request.abort();
      clearTimeout(timer);
    };
  }, [id, following]);

  return output;
}

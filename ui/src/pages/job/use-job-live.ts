/**
 * Keeps one job's page true: loads its curves, then follows the stream from exactly there.
 *
 * The browser reconnects by itself and says what it saw last. When it gives up, as it does after an
 * error answer, this starts a new stream from the last position. A job at rest, and a page nobody
 * looks at, hold no connection: browsers allow few of them per server.
 */
import { useEffect, useState } from "react";
import { checkpointsQuery, fetchCurves, isResting, jobQuery } from "@/api/jobs";
import { queryClient } from "@/api/client";
import type { Job, JobStatus } from "@/api/types";
import { CurveStore, type LiveSeries } from "@/charts/curve-store";

export type Connection = "resting" | "connecting" | "live" | "lost";

type JobUpdate = {
  series?: LiveSeries[];
  reload?: boolean;
  checkpoints?: boolean;
  job?: Pick<Job, "status" | "want" | "settings" | "attempt" | "summary" | "rowsUsed" | "rowsTotal" | "warnings" | "warningsLeftOut" | "errorCode" | "errorMessage" | "startTime" | "endTime">;
};

const RETRY_AFTER = 3_000;
const HIDDEN_FOR = 60_000;

export function useJobLive(id: string, status: JobStatus | undefined) {
  const [store] = useState(() => new CurveStore());
  const [connection, setConnection] = useState<Connection>("connecting");
  const moving = status !== undefined && !isResting(status);
  const known = status !== undefined;

  useEffect(() => {
    if (!known) return;
    const follower = new Follower(id, store, moving, setConnection);
    follower.start();
    return () => follower.stop();
  }, [id, store, known, moving]);

  return { store, connection };
}

class Follower {
  #stream: EventSource | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #stopped = false;
  #wasLost = false;

  constructor(
    private readonly id: string,
    private readonly store: CurveStore,
    private readonly moving: boolean,
    private readonly tell: (connection: Connection) => void,
  ) {}

  start() {
    document.addEventListener("visibilitychange", this.#onVisibility);
    this.tell(this.moving ? "connecting" : "resting");
    void this.#load();
  }

  stop() {
    this.#stopped = true;
    document.removeEventListener("visibilitychange", this.#onVisibility);
    this.#close();
  }

  async #load() {
    try {
      const curves = await fetchCurves(this.id);
      if (this.#stopped) return;
      this.store.load(curves);
      this.#refresh();
      if (this.moving) this.#open();
    } catch {
      this.#tryAgain(() => void this.#load());
    }
  }

  #open() {
    this.#close();
    const stream = new EventSource(`/api/jobs/${this.id}/stream?after=${this.store.position}`);
    this.#stream = stream;
    stream.addEventListener("open", () => {
      this.tell("live");
      if (this.#wasLost) this.#refresh();
      this.#wasLost = false;
    });
    stream.addEventListener("error", () => {
      this.#wasLost = true;
      this.tell("lost");
      if (stream.readyState === EventSource.CLOSED) this.#tryAgain(() => this.#open());
    });
    stream.addEventListener("update", (event: MessageEvent<string>) => this.#update(Number(event.lastEventId), event.data));
    stream.addEventListener("reset", () => this.#reload());
  }

  #update(position: number, data: string) {
    const update = JSON.parse(data) as JobUpdate;
    if (update.series ? !this.store.append(position, update.series) : !this.store.advance(position)) return;
    if (update.job) this.#changed(update.job);
    if (update.checkpoints) void queryClient.invalidateQueries({ queryKey: checkpointsQuery(this.id).queryKey });
    if (update.reload || this.store.overfull) this.#reload();
  }

  #changed(change: NonNullable<JobUpdate["job"]>) {
    const key = jobQuery(this.id).queryKey;
    const before = queryClient.getQueryData(key);
    queryClient.setQueryData(key, (job) => (job ? { ...job, ...change } : job));
    // Its position in the queue and whether there is a model are not in the stream.
    if (before?.status !== change.status) void queryClient.invalidateQueries({ queryKey: key });
  }

  /** The stream can go on only from what is loaded, so it is opened anew. */
  #reload() {
    this.#close();
    void this.#load();
  }

  #refresh() {
    void queryClient.invalidateQueries({ queryKey: jobQuery(this.id).queryKey });
    void queryClient.invalidateQueries({ queryKey: checkpointsQuery(this.id).queryKey });
  }

  #tryAgain(action: () => void) {
    if (this.#stopped) return;
    this.#wasLost = true;
    this.tell("lost");
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      // Asking for the job also finds out when the session has ended, and then asks to sign in.
      void queryClient.invalidateQueries({ queryKey: jobQuery(this.id).queryKey });
      action();
    }, RETRY_AFTER);
  }

  #onVisibility = () => {
    clearTimeout(this.#timer);
    if (document.hidden) this.#timer = setTimeout(() => this.#close(), HIDDEN_FOR);
    else if (this.moving && this.store.loaded && this.#stream === null) this.#open();
  };

  #close() {
    clearTimeout(this.#timer);
    this.#stream?.close();
    this.#stream = null;
  }
}

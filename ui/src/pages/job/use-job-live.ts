/**
 * Keeps one job's page true: loads its curves, then follows the stream from exactly there.
 *
 * The browser reconnects by itself and says what it saw last. When it gives up, as it does after an
 * error answer, this starts a new stream from the last position: after a pause, or at once when the page
 * is looked at again or the browser is online again. A job at rest, and a page nobody
 * looks at, hold no connection: browsers allow few of them per server.
 *
 * An event says only what changed since the one before it, so it is put into a job that has seen that
 * one. A job that was loaded earlier and arrives later is loaded again.
 */
import { hashKey } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { withUpdate } from "@/api/summary";
import { checkpointsQuery, fetchCurves, isResting, jobQuery } from "@/api/jobs";
import { queryClient } from "@/api/client";
import type { Job, JobStatus, JobUpdate } from "@/api/types";
import { CurveStore } from "@/charts/curve-store";

export type Connection = "resting" | "connecting" | "live" | "lost";

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
  /** What failed and is tried again when its time is up. */
  #retry: (() => void) | null = null;
  #retryTimer: ReturnType<typeof setTimeout> | undefined;
  #hiddenTimer: ReturnType<typeof setTimeout> | undefined;
  /** Nobody has looked at the page for a while. */
  #asleep = false;
  #stopped = false;
  #wasLost = false;
  /** Up to where the stream has told of the job. */
  #told = 0;
  #unsubscribe = () => {};

  constructor(
    private readonly id: string,
    private readonly store: CurveStore,
    private readonly moving: boolean,
    private readonly tell: (connection: Connection) => void,
  ) {}

  start() {
    document.addEventListener("visibilitychange", this.#onVisibility);
    window.addEventListener("online", this.#reconnect);
    const hash = hashKey(jobQuery(this.id).queryKey);
    this.#unsubscribe = queryClient.getQueryCache().subscribe((event) => {
      if (event.type !== "updated" || event.action.type !== "success" || event.query.queryHash !== hash) return;
      if ((event.query.state.data as Job).position < this.#told) this.#refreshJob();
    });
    this.tell(this.moving ? "connecting" : "resting");
    void this.#load();
  }

  stop() {
    this.#stopped = true;
    document.removeEventListener("visibilitychange", this.#onVisibility);
    window.removeEventListener("online", this.#reconnect);
    clearTimeout(this.#hiddenTimer);
    this.#unsubscribe();
    this.#close();
  }

  async #load() {
    this.#told = 0;
    try {
      const curves = await fetchCurves(this.id);
      if (this.#stopped) return;
      this.store.load(curves);
      this.#refresh();
      if (this.moving) this.#open();
      else this.tell("resting");
    } catch {
      this.#tryAgain(() => void this.#load());
    }
  }

  #open() {
    this.#close();
    if (this.#asleep) return;
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
    stream.addEventListener("delta", (event: MessageEvent<string>) => this.#update(Number(event.lastEventId), event.data));
    stream.addEventListener("reset", () => this.#reload());
  }

  #update(position: number, data: string) {
    const update = JSON.parse(data) as JobUpdate;
    this.#tellJob(position, update);
    if (update.checkpoints) void queryClient.invalidateQueries({ queryKey: checkpointsQuery(this.id).queryKey });
    if (update.series) this.store.append(position, update.series);
    else this.store.advance(position);
    if (update.reload || this.store.overfull) this.#reload();
  }

  #tellJob(position: number, update: JobUpdate) {
    const key = jobQuery(this.id).queryKey;
    const before = queryClient.getQueryData(key);
    this.#told = position;
    if (!before || before.position >= position) return;
    if (before.position < (update.since ?? 0)) {
      this.#refreshJob();
      return;
    }
    const job = withUpdate(before, position, update);
    queryClient.setQueryData(key, job);
    // Its position in the queue and whether there is a model are not in the stream.
    if (before.status !== job.status) this.#refreshJob();
  }

  #refreshJob() {
    void queryClient.invalidateQueries({ queryKey: jobQuery(this.id).queryKey }, { cancelRefetch: false });
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
    clearTimeout(this.#retryTimer);
    this.#retry = action;
    this.#retryTimer = setTimeout(this.#reconnect, RETRY_AFTER);
  }

  /** Does at once what waits for its time, and does not wait for the browser's own attempt either. */
  #reconnect = () => {
    const action = this.#retry;
    this.#cancelRetry();
    if (action) {
      // Asking for the job also finds out when the session has ended, and then asks to sign in.
      void queryClient.invalidateQueries({ queryKey: jobQuery(this.id).queryKey });
      action();
    } else if (!this.store.loaded) {
      void this.#load();
    } else if (this.moving && this.#stream?.readyState !== EventSource.OPEN) {
      this.#open();
    }
  };

  #onVisibility = () => {
    clearTimeout(this.#hiddenTimer);
    this.#asleep = false;
    if (document.hidden) this.#hiddenTimer = setTimeout(() => this.#sleep(), HIDDEN_FOR);
    else this.#reconnect();
  };

  #sleep() {
    this.#asleep = true;
    this.#close();
  }

  #cancelRetry() {
    clearTimeout(this.#retryTimer);
    this.#retry = null;
  }

  #close() {
    this.#cancelRetry();
    this.#stream?.close();
    this.#stream = null;
  }
}

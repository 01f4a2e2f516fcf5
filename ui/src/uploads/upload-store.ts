/** Uploads under way. They belong to the app and not to a page: they continue on every other page. */
import { useSyncExternalStore } from "react";
import { sentenceOf } from "@/api/problem";
import { type Destination, sendPieces } from "./send-pieces";

export type Upload = {
  id: number;
  /** What the bytes become on the server; its page leaves showing the progress to the upload. */
  target: { kind: "dataset" | "model"; id: string };
  name: string;
  size: number;
  sent: number;
  state: "sending" | "waiting" | "failed";
  problem: string | null;
};

export type Part = { file: Blob; to: Destination };

type Task = {
  target: Upload["target"];
  name: string;
  parts: Part[];
  /** The server has all of it. */
  onDone: () => void;
  /** Removes what the server has of it. */
  onCancel: () => Promise<void>;
};

type Held = { upload: Upload; task: Task; control: AbortController };

let held: Held[] = [];
let snapshot: readonly Upload[] = [];
let lastId = 0;
const listeners = new Set<() => void>();

function announce() {
  snapshot = held.map(({ upload }) => upload);
  listeners.forEach((listener) => listener());
  // A closed tab ends an upload; the browser asks first.
  if (held.some(({ upload }) => upload.state !== "failed")) window.addEventListener("beforeunload", holdBack);
  else window.removeEventListener("beforeunload", holdBack);
}

const holdBack = (event: Event) => event.preventDefault();

const find = (id: number) => held.find(({ upload }) => upload.id === id);

function change(id: number, next: Partial<Upload>) {
  held = held.map((one) => (one.upload.id === id ? { ...one, upload: { ...one.upload, ...next } } : one));
  announce();
}

function drop(id: number) {
  held = held.filter(({ upload }) => upload.id !== id);
  announce();
}

/** Begins to send at once, from where the server is. */
export function startUpload(task: Task): void {
  // The same thing sent twice would be two writers of one file.
  const before = held.find(({ upload }) => upload.target.id === task.target.id);
  if (before) {
    if (before.upload.state !== "failed") return;
    drop(before.upload.id);
  }
  lastId += 1;
  const size = task.parts.reduce((sum, part) => sum + part.file.size, 0);
  const upload: Upload = { id: lastId, target: task.target, name: task.name, size, sent: 0, state: "sending", problem: null };
  held = [...held, { upload, task, control: new AbortController() }];
  announce();
  void run(upload.id);
}

async function run(id: number) {
  const one = find(id);
  if (!one) return;
  const { task, control } = one;
  try {
    let before = 0;
    for (const part of task.parts) {
      const base = before;
      await sendPieces(part.file, part.to, {
        signal: control.signal,
        onProgress: (sent) => change(id, { sent: base + sent }),
        onWaiting: (waiting) => change(id, { state: waiting ? "waiting" : "sending" }),
      });
      before += part.file.size;
    }
    drop(id);
    task.onDone();
  } catch (error) {
    if (!control.signal.aborted) change(id, { state: "failed", problem: sentenceOf(error) });
  }
}

/** Sends on from where the server is. */
export function retryUpload(id: number) {
  const one = find(id);
  if (!one || one.upload.state !== "failed") return;
  change(id, { state: "sending", problem: null });
  void run(id);
}

/** Stops sending and removes what has arrived. */
export async function cancelUpload(id: number) {
  const one = find(id);
  if (!one) return;
  one.control.abort();
  drop(id);
  await one.task.onCancel();
}

/** Nothing may go on in the name of somebody who has left. */
export function stopUploads() {
  held.forEach(({ control }) => control.abort());
  held = [];
  announce();
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export const useUploads = () => useSyncExternalStore(subscribe, () => snapshot);

/** The upload that fills a dataset or model, if this browser is the one that sends it. */
export const useUploadOf = (id: string) => useUploads().find((upload) => upload.target.id === id);

import { CircleCheck, TriangleAlert, X } from "lucide-react";
import { useEffect, useState, useSyncExternalStore } from "react";
import { Button } from "./button";

type Toast = { id: number; message: string; failed: boolean };

const DURATION_MS = 5000;
let toasts: Toast[] = [];
let lastId = 0;
const listeners = new Set<() => void>();

function change(next: Toast[]) {
  toasts = next;
  listeners.forEach((listener) => listener());
}

function show(message: string, failed: boolean) {
  lastId += 1;
  change([...toasts, { id: lastId, message, failed }].slice(-3));
}

/** Says that something was done. */
export const toast = (message: string) => show(message, false);

/** For failures that belong to no element of the page; all others are shown next to what failed. */
export const toastFailure = (message: string) => show(message, true);

const dismiss = (id: number) => change(toasts.filter((item) => item.id !== id));

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

function ToastLine({ id, message, failed }: Toast) {
  const [held, setHeld] = useState(false);

  // Reading takes as long as it takes: a toast under the pointer or with the focus stays.
  useEffect(() => {
    if (held) return;
    const timer = setTimeout(() => dismiss(id), DURATION_MS);
    return () => clearTimeout(timer);
  }, [held, id]);

  return (
    <li
      onMouseEnter={() => setHeld(true)}
      onMouseLeave={() => setHeld(false)}
      onFocus={() => setHeld(true)}
      onBlur={() => setHeld(false)}
      className="pointer-events-auto flex animate-enter items-center gap-3 rounded-card border border-line-strong bg-raised py-2 pr-2 pl-3.5 shadow-xl shadow-black/40"
    >
      {failed ? (
        <TriangleAlert aria-hidden className="size-4.5 shrink-0 text-danger-soft" />
      ) : (
        <CircleCheck aria-hidden className="size-4.5 shrink-0 text-success-soft" />
      )}
      <span className="min-w-0 break-words">{message}</span>
      <Button variant="ghost" size="icon" aria-label="Dismiss" onClick={() => dismiss(id)} className="size-7">
        <X aria-hidden />
      </Button>
    </li>
  );
}

export function Toasts() {
  const visible = useSyncExternalStore(subscribe, () => toasts);
  return (
    <section aria-label="Notifications" aria-live="polite" className="pointer-events-none fixed right-4 bottom-4 z-[60] max-w-[calc(100vw-2rem)]">
      {visible.length > 0 && (
        <ol className="flex flex-col items-end gap-2">
          {visible.map((item) => (
            <ToastLine key={item.id} {...item} />
          ))}
        </ol>
      )}
    </section>
  );
}

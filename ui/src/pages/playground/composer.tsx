import { ArrowUp, Square } from "lucide-react";
import { type KeyboardEvent, useLayoutEffect, useRef, useState } from "react";
import { Button } from "@/components/button";
import { Textarea } from "@/components/input";
import type { Mode } from "./conversation";

type ComposerProps = { mode: Mode; writing: boolean; ready: boolean; onSend: (text: string) => void; onStop: () => void };

const TALLEST = 220;

/** Enter sends, Shift with Enter begins a new line. What is typed while the model loads is kept. */
export function Composer({ mode, writing, ready, onSend, onStop }: ComposerProps) {
  const [text, setText] = useState("");
  const box = useRef<HTMLTextAreaElement>(null);
  const sendable = ready && !writing && text.trim() !== "";

  useLayoutEffect(() => {
    const area = box.current;
    if (!area) return;
    area.style.height = "auto";
    area.style.height = `${Math.min(TALLEST, area.scrollHeight + 2)}px`;
  });

  function send() {
    if (!sendable) return;
    onSend(mode === "chat" ? text.trim() : text);
    // A text that was continued is often changed a little and continued again.
    if (mode === "chat") setText("");
  }

  function pressed(event: KeyboardEvent) {
    // While a word is being composed, as in Japanese, Enter only chooses it.
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    send();
  }

  return (
    <form
      aria-label={mode === "chat" ? "Message" : "Text to continue"}
      className="flex items-end gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <Textarea
        ref={box}
        aria-label={mode === "chat" ? "Your message" : "Text to continue"}
        placeholder={mode === "chat" ? "Ask something" : "The beginning of a text"}
        value={text}
        rows={mode === "chat" ? 1 : 4}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={pressed}
        className="min-h-10 resize-none py-2.25"
      />
      {writing ? (
        <Button size="icon" aria-label="Stop" title="Stop" className="size-10" onClick={onStop}>
          <Square aria-hidden className="fill-current" />
        </Button>
      ) : (
        <Button type="submit" variant="primary" size="icon" aria-label="Send" title="Send (Enter)" disabled={!sendable} className="size-10">
          <ArrowUp aria-hidden />
        </Button>
      )}
    </form>
  );
}

/** Choosing files with a button, and dropping them on an area. */
import { FileUp } from "lucide-react";
import { type DragEvent, type ReactNode, useRef, useState } from "react";
import { SUFFIXES } from "./chosen-files";
import { Button } from "@/components/button";

type ChooseFilesProps = { onChoose: (files: File[]) => void; text: string; several?: boolean; variant?: "primary" | "outline" | "ghost"; size?: "small" | "label" };

/** A button that opens the disk. */
export function ChooseFiles({ onChoose, text, several = false, variant = "outline", size }: ChooseFilesProps) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <input
        ref={input}
        type="file"
        aria-label={text}
        accept={SUFFIXES.join(",")}
        multiple={several}
        hidden
        onChange={(event) => {
          onChoose([...(event.target.files ?? [])]);
          // The same file can be chosen twice in a row.
          event.target.value = "";
        }}
      />
      <Button variant={variant} size={size} onClick={() => input.current?.click()}>
        <FileUp aria-hidden />
        {text}
      </Button>
    </>
  );
}

type DropAreaProps = {
  /** Folders are in the transfer only, and only until this returns. */
  onDrop: (files: File[], transfer: DataTransfer) => void;
  text?: string;
  children: ReactNode;
};

const carriesFiles = (event: DragEvent) => event.dataTransfer.types.includes("Files");

/** Takes files that are dropped anywhere on it. Everything it does can also be done by a button. */
export function DropArea({ onDrop, text = "Drop to upload", children }: DropAreaProps) {
  // Moving over a child leaves the parent: what counts is how many were entered.
  const [inside, setInside] = useState(0);
  return (
    // oxlint-disable-next-line jsx-a11y/no-static-element-interactions -- the button next to it does the same by keyboard
    <div
      className="relative min-w-0"
      onDragEnter={(event) => carriesFiles(event) && setInside((depth) => depth + 1)}
      onDragLeave={(event) => carriesFiles(event) && setInside((depth) => Math.max(0, depth - 1))}
      onDragOver={(event) => carriesFiles(event) && event.preventDefault()}
      onDrop={(event) => {
        if (!carriesFiles(event)) return;
        event.preventDefault();
        setInside(0);
        onDrop([...event.dataTransfer.files], event.dataTransfer);
      }}
    >
      {children}
      {inside > 0 && (
        <div aria-hidden className="pointer-events-none absolute -inset-2 z-20 grid place-items-center rounded-2xl border-2 border-dashed border-violet-soft bg-page/85 text-lg font-[590] text-violet-soft">
          {text}
        </div>
      )}
    </div>
  );
}

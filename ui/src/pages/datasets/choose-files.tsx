import { FileUp } from "lucide-react";
import { useRef } from "react";
import { Button } from "@/components/button";
import { SUFFIXES } from "@/uploads/dataset-files";

type ChooseFilesProps = { onChoose: (files: File[]) => void; text: string; several?: boolean; variant?: "primary" | "outline"; size?: "small" };

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

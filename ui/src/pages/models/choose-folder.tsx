import { FolderUp } from "lucide-react";
import { useRef } from "react";
import { Button } from "@/components/button";
import { type Folder, readFolder } from "@/uploads/model-folder";

/** React knows no `webkitdirectory`; every browser does. */
const WHOLE_FOLDER = { webkitdirectory: "" } as object;

type ChooseFolderProps = { onChoose: (folder: Folder) => void; text: string; size?: "small" };

export function ChooseFolder({ onChoose, text, size }: ChooseFolderProps) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <input
        ref={input}
        type="file"
        aria-label={text}
        hidden
        {...WHOLE_FOLDER}
        onChange={(event) => {
          onChoose(readFolder([...(event.target.files ?? [])]));
          event.target.value = "";
        }}
      />
      <Button size={size} onClick={() => input.current?.click()}>
        <FolderUp aria-hidden />
        {text}
      </Button>
    </>
  );
}

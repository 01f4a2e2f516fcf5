import { Download } from "lucide-react";
import { useState } from "react";
import { colabNotebook } from "@/api/ml-jobs";
import { sentenceOf } from "@/api/problem";
import { Button } from "@/components/button";
import { toast, toastFailure } from "@/components/toasts";
import { type Draft, scriptRequest } from "./script-draft";

/** Colab runs what somebody opens there: the script as a notebook, to take along. */
export function NotebookButton({ draft }: { draft: Draft }) {
  const [pending, setPending] = useState(false);

  async function download() {
    const request = scriptRequest(draft);
    if (request === null || draft.entry === null) return;
    setPending(true);
    try {
      const notebook = await colabNotebook({ ...request, entry: draft.entry, name: draft.name.trim() || null });
      save(notebook, `${(draft.name.trim() || "script").replaceAll(/[^\w-]+/g, "-")}.ipynb`);
      toast("The notebook is made. Open it in Colab and run its cells from the top.");
    } catch (error) {
      toastFailure(sentenceOf(error));
    } finally {
      setPending(false);
    }
  }

  return (
    <Button size="small" pending={pending} onClick={() => void download()}>
      <Download aria-hidden />
      Download the notebook
    </Button>
  );
}

function save(text: string, name: string) {
  const address = URL.createObjectURL(new Blob([text], { type: "application/x-ipynb+json" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  URL.revokeObjectURL(address);
}

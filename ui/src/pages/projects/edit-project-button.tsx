import { Pencil } from "lucide-react";
import { useState } from "react";
import type { Project } from "@/api/types";
import { Button } from "@/components/button";
import { toast } from "@/components/toasts";
import { ProjectDialog } from "@/forms/project-dialog";

export function EditProjectButton({ project }: { project: Project }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button onClick={() => setOpen(true)}>
        <Pencil aria-hidden />
        Edit
      </Button>
      <ProjectDialog open={open} onOpenChange={setOpen} project={project} onSaved={() => toast("Changes saved.")} />
    </>
  );
}

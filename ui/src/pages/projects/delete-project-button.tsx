import { useNavigate } from "@tanstack/react-router";
import { Trash2 } from "lucide-react";
import { useState } from "react";
import { deleteProject } from "@/api/projects";
import type { Project } from "@/api/types";
import { Button } from "@/components/button";
import { ConfirmDialog } from "@/components/confirm-dialog";
import { toast } from "@/components/toasts";

export function DeleteProjectButton({ project }: { project: Project }) {
  const [open, setOpen] = useState(false);
  const navigate = useNavigate();
  return (
    <>
      <Button onClick={() => setOpen(true)}>
        <Trash2 aria-hidden />
        Delete
      </Button>
      <ConfirmDialog
        open={open}
        onOpenChange={setOpen}
        title={`Delete “${project.name}”?`}
        action="Delete project"
        onConfirm={async () => {
          await deleteProject(project.id);
          toast(`Project “${project.name}” deleted.`);
          await navigate({ to: "/projects" });
        }}
      >
        The project is removed from this server for good. Training data at its path is not touched.
      </ConfirmDialog>
    </>
  );
}

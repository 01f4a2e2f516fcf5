import type { Project } from "@/api/types";
import { Dialog } from "@/components/dialog";
import { ProjectForm } from "./project-form";

type ProjectDialogProps = {
  open: boolean;
  onOpenChange: (open: boolean) => void;
  project?: Project;
  onSaved: (project: Project) => void;
};

export function ProjectDialog({ open, onOpenChange, project, onSaved }: ProjectDialogProps) {
  return (
    <Dialog
      open={open}
      onOpenChange={onOpenChange}
      title={project ? "Edit project" : "New project"}
      description={project ? undefined : "A project holds a model and the training runs made with it."}
    >
      <ProjectForm
        project={project}
        onCancel={() => onOpenChange(false)}
        onSaved={(saved) => {
          onOpenChange(false);
          onSaved(saved);
        }}
      />
    </Dialog>
  );
}

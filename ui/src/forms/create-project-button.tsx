import { useNavigate } from "@tanstack/react-router";
import { Plus } from "lucide-react";
import { useState } from "react";
import { Button } from "@/components/button";
import { toast } from "@/components/toasts";
import { ProjectDialog } from "./project-dialog";

export function CreateProjectButton({ variant = "primary" }: { variant?: "primary" | "outline" }) {
  const [open, setOpen] = useState(false);
  const navigate = useNavigate();
  return (
    <>
      <Button variant={variant} onClick={() => setOpen(true)}>
        <Plus aria-hidden />
        New Project
      </Button>
      <ProjectDialog
        open={open}
        onOpenChange={setOpen}
        onSaved={(project) => {
          toast(`Project “${project.name}” created.`);
          void navigate({ to: "/projects/$projectId", params: { projectId: project.id } });
        }}
      />
    </>
  );
}

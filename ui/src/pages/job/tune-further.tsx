/** From a trained model to the form that fine-tunes it further: the model becomes one of the person's own. */
import { useNavigate } from "@tanstack/react-router";
import { Sparkles } from "lucide-react";
import { addJobModel } from "@/api/models";
import { Button } from "@/components/button";
import { toast, useAction } from "@/components/toasts";

export function useTuneFurther(jobId: string) {
  const navigate = useNavigate();
  return useAction(async () => {
    const model = await addJobModel(jobId);
    toast(`“${model.name}” is now one of your models.`);
    await navigate({ to: "/finetune", search: { model: model.id } });
  });
}

/** For a merged export, which is a whole model. */
export function TuneFurtherButton({ jobId }: { jobId: string }) {
  const { pending, run } = useTuneFurther(jobId);
  return (
    <Button size="small" pending={pending} className="w-fit" onClick={run}>
      {!pending && <Sparkles aria-hidden />}
      Fine-tune this model
    </Button>
  );
}

/** From a trained model to the form that fine-tunes it further: the model becomes one of the person's own. */
import { useNavigate } from "@tanstack/react-router";
import { Sparkles } from "lucide-react";
import { useState } from "react";
import { addJobModel } from "@/api/models";
import { sentenceOf } from "@/api/problem";
import { Button } from "@/components/button";
import { toast, toastFailure } from "@/components/toasts";

export function useTuneFurther(jobId: string) {
  const navigate = useNavigate();
  const [pending, setPending] = useState(false);

  async function start() {
    setPending(true);
    try {
      const model = await addJobModel(jobId);
      toast(`“${model.name}” is now one of your models.`);
      await navigate({ to: "/finetune", search: { model: model.id } });
    } catch (error) {
      toastFailure(sentenceOf(error));
    } finally {
      setPending(false);
    }
  }

  return { start, pending };
}

/** For a merged export, which is a whole model. */
export function TuneFurtherButton({ jobId }: { jobId: string }) {
  const { start, pending } = useTuneFurther(jobId);
  return (
    <Button size="small" pending={pending} className="w-fit" onClick={() => void start()}>
      {!pending && <Sparkles aria-hidden />}
      Fine-tune this model
    </Button>
  );
}

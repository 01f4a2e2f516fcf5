import { SquareTerminal } from "lucide-react";
import { Card, CardHeader } from "@/components/card";
import { CommandLine } from "@/components/command-line";
import { EmptyState } from "@/components/empty-state";
import { TRAIN_COMMAND } from "@/text/commands";

export function TrainingJobsCard() {
  return (
    <Card className="h-full">
      <CardHeader title="Training jobs" />
      <EmptyState icon={SquareTerminal} title="Training is started from the command line for now.">
        <p>Jobs cannot be started or watched from this page yet. On the machine with the GPU, run:</p>
        <div className="mt-4">
          <CommandLine command={TRAIN_COMMAND} />
        </div>
      </EmptyState>
    </Card>
  );
}

import { useQuery } from "@tanstack/react-query";
import { FileCode } from "lucide-react";
import { type ScriptTemplate, templatesQuery } from "@/api/ml-jobs";
import { Button } from "@/components/button";
import { Loaded } from "@/components/loaded";
import { SkeletonRows } from "@/components/skeleton";
import { BringFiles } from "./bring-files";
import type { IncomingFile } from "./script-files";

type FirstChoiceProps = { onBring: (incoming: IncomingFile[]) => void; onWrite: () => void; onTemplate: (template: ScriptTemplate) => void };

/** An empty page: bring a folder, write something, or take a template. */
export function FirstChoice({ onBring, onWrite, onTemplate }: FirstChoiceProps) {
  return (
    <div className="grid gap-5">
      <div className="grid justify-items-center gap-3 rounded-card border-2 border-dashed border-line-strong px-4 py-7 text-center">
        <p className="text-lg font-[560]">Drop a folder with your script here.</p>
        <p className="max-w-lg text-dim">Nothing in it has to know of GPU Bloom: progress is read from what it prints, checkpoints from what it saves.</p>
        <div className="flex flex-wrap justify-center gap-2">
          <BringFiles onBring={onBring} />
          <Button onClick={onWrite}>
            <FileCode aria-hidden />
            Write or paste one
          </Button>
        </div>
      </div>
      <TemplateList onTemplate={onTemplate} />
    </div>
  );
}

function TemplateList({ onTemplate }: { onTemplate: (template: ScriptTemplate) => void }) {
  const templates = useQuery(templatesQuery);
  return (
    <section aria-labelledby="templates">
      <h3 id="templates" className="mb-2 text-xs text-dim">
        Or start from a template: each runs as it is
      </h3>
      <Loaded query={templates} skeleton={<SkeletonRows rows={3} className="h-16" />}>
        {(loaded) => (
          <ul className="grid gap-2 sm:grid-cols-2">
            {loaded.map((template) => (
              <li key={template.name} className="grid">
                <button
                  type="button"
                  onClick={() => onTemplate(template)}
                  className="flex flex-col justify-start rounded-control border border-line-strong px-3.5 py-2.5 text-left transition-colors duration-150 hover:border-violet-soft/50 hover:bg-white/4"
                >
                  <span className="block font-[570]">{template.title}</span>
                  <span className="mt-0.5 block text-xs text-dim">{template.description}</span>
                </button>
              </li>
            ))}
          </ul>
        )}
      </Loaded>
    </section>
  );
}

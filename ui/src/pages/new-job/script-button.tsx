import { useQuery } from "@tanstack/react-query";
import { Download, FileCode } from "lucide-react";
import { useState } from "react";
import { planScriptQuery } from "@/api/jobs";
import type { PlanRequest } from "@/api/types";
import { Button } from "@/components/button";
import { CopyButton } from "@/components/copy-button";
import { Dialog } from "@/components/dialog";
import { Loaded } from "@/components/loaded";
import { SkeletonRows } from "@/components/skeleton";
import { Tab, TabList, TabPanel, Tabs } from "@/components/tabs";

/** The script of a job that is not started yet: to read, to copy, to run by hand. */
export function ScriptButton({ request, ready }: { request: PlanRequest; ready: boolean }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button disabled={!ready} onClick={() => setOpen(true)}>
        <FileCode aria-hidden />
        View train.py
      </Button>
      <Dialog open={open} onOpenChange={setOpen} title="The script of this job" description="The job runs train.py beside config.json. By hand it gives the same result." className="max-w-3xl">
        <Files request={request} />
      </Dialog>
    </>
  );
}

function Files({ request }: { request: PlanRequest }) {
  const script = useQuery(planScriptQuery(request));
  return (
    <Loaded query={script} skeleton={<SkeletonRows rows={6} />}>
      {(loaded) => (
        <Tabs defaultValue="train.py">
          <TabList aria-label="Files">
            <Tab value="train.py">train.py</Tab>
            <Tab value="config.json">config.json</Tab>
            <Tab value="requirements.txt">requirements.txt</Tab>
          </TabList>
          <FilePanel name="train.py" text={loaded.script} />
          <FilePanel name="config.json" text={loaded.config} />
          <FilePanel name="requirements.txt" text={loaded.requirements} />
        </Tabs>
      )}
    </Loaded>
  );
}

function FilePanel({ name, text }: { name: string; text: string }) {
  return (
    <TabPanel value={name} tabIndex={-1}>
      <div className="mb-2 flex justify-end gap-2">
        <CopyButton text={text} label={`Copy ${name}`} />
        <Button asChild size="small">
          <a href={`data:text/plain;charset=utf-8,${encodeURIComponent(text)}`} download={name}>
            <Download aria-hidden />
            Download
          </a>
        </Button>
      </div>
      {/* Wrapped: what scrolls sideways is out of reach for a keyboard. */}
      <pre className="rounded-control border border-line bg-rail p-3 font-mono text-xs break-words whitespace-pre-wrap text-[#c3cad5]">{text}</pre>
    </TabPanel>
  );
}

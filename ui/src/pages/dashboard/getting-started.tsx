import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { CreateProjectButton } from "@/forms/create-project-button";
import { DemoButton } from "@/pages/jobs/demo-button";

function Step({ number, title, children }: { number: number; title: string; children: ReactNode }) {
  return (
    <li className="flex min-w-0 gap-3.5">
      <span aria-hidden className="mt-0.5 grid size-6 shrink-0 place-items-center rounded-full border border-violet-soft/40 bg-violet/15 text-xs font-[600] text-violet-soft">
        {number}
      </span>
      <div className="min-w-0 flex-1">
        <h3 className="font-[570]">{title}</h3>
        <div className="mt-1 grid grid-cols-[minmax(0,1fr)] justify-items-start gap-2.5 text-dim [&>div]:w-full">{children}</div>
      </div>
    </li>
  );
}

/** What an empty dashboard shows instead of emptiness. */
export function GettingStarted() {
  return (
    <Card>
      <CardHeader title="Getting started" />
      <ol className="grid gap-6 pb-1 sm:grid-cols-2 2xl:grid-cols-4">
        <Step number={1} title="See it work">
          <p>A small model on text that every machine has. It needs no data, no GPU and a few minutes.</p>
          <DemoButton />
        </Step>
        <Step number={2} title="Teach a model">
          <p>Drop a file of examples, choose a model, and see live how it learns them. Then talk to it.</p>
          <div className="flex flex-wrap gap-2">
            <Button asChild>
              <Link to="/datasets">Bring examples</Link>
            </Button>
            <CreateProjectButton variant="outline" />
          </div>
        </Step>
        <Step number={3} title="Run your own script">
          <p>Any training folder, as it is: here or on a GPU that is rented by the minute. What it needs and costs is shown first.</p>
          <Button asChild>
            <Link to="/script">Run a script</Link>
          </Button>
        </Step>
        <Step number={4} title="Let scripts in">
          <p>An API token lets a script talk to this server in your name, with only the rights you give it.</p>
          <Button asChild>
            <Link to="/settings" search={{ tab: "tokens" }}>
              Create an API token
            </Link>
          </Button>
        </Step>
      </ol>
    </Card>
  );
}

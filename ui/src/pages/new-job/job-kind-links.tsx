import { Link } from "@tanstack/react-router";

const linkClass =
  "rounded-lg px-3.5 py-1.25 text-dim transition-colors duration-150 hover:text-text aria-[current=page]:bg-raised aria-[current=page]:text-white max-sm:px-2.5 max-sm:py-2 max-sm:text-sm";

/** Three ways to begin: with a model that has learned something, with none, or with a script of one's own. */
export function JobKindLinks({ projectId }: { projectId?: string }) {
  return (
    <nav aria-label="Kind of training" className="mb-3.5 flex w-max gap-1 rounded-[10px] border border-line bg-rail p-[3px]">
      <Link to="/finetune" search={{ project: projectId }} activeOptions={{ includeSearch: false }} className={linkClass}>
        Fine-tune
      </Link>
      {projectId ? (
        <Link to="/projects/$projectId/jobs/new" params={{ projectId }} className={linkClass}>
          From scratch
        </Link>
      ) : (
        <Link to="/jobs/new" className={linkClass}>
          From scratch
        </Link>
      )}
      <Link to="/script" search={{ project: projectId }} activeOptions={{ includeSearch: false }} className={linkClass}>
        Script
      </Link>
    </nav>
  );
}

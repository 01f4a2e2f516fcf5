/** The routes and the router. Each page is loaded when it is first visited. */
import type { QueryClient } from "@tanstack/react-query";
import { createRootRouteWithContext, createRoute, createRouter, lazyRouteComponent, redirect, useChildMatches } from "@tanstack/react-router";
import { authStateQuery } from "./api/auth";
import { queryClient } from "./api/client";
import { jobQuery } from "./api/jobs";
import { Toasts } from "./components/toasts";
import { authSearch, checkpointsSearch, compareSearch, finetuneSearch, jobSearch, jobsSearch, newJobSearch, playgroundSearch, projectsSearch, providersSearch, runsOfJobs, runsSearch, scriptSearch, settingsSearch } from "./shell/address";
import { BarePagePending, PageOutlet, PagePending, UnreachableNotice } from "./shell/page";
import { BarePageError, NotFound, PageError, reachablePart } from "./shell/page-error";

function Root() {
  const inFrame = useChildMatches({ select: ([page]) => page?.routeId === "/app" && page.status === "success" });
  return (
    <>
      {/* Inside the app it stands beside the sidebar, which is as high as the window. */}
      {!inFrame && <UnreachableNotice />}
      <PageOutlet />
      <Toasts />
    </>
  );
}

const root = createRootRouteWithContext<{ queryClient: QueryClient }>()({ component: Root });

const landing = createRoute({
  getParentRoute: () => root,
  path: "/",
  component: lazyRouteComponent(() => reachablePart(import("./pages/landing/landing-page")), "LandingPage"),
});

const auth = createRoute({
  getParentRoute: () => root,
  path: "/auth",
  validateSearch: authSearch,
  component: lazyRouteComponent(() => reachablePart(import("./pages/auth/auth-page")), "AuthPage"),
});

const verify = createRoute({
  getParentRoute: () => root,
  path: "/auth/verify",
  component: lazyRouteComponent(() => reachablePart(import("./pages/auth/email-link-pages")), "VerifyPage"),
});

const forgot = createRoute({
  getParentRoute: () => root,
  path: "/auth/forgot",
  component: lazyRouteComponent(() => reachablePart(import("./pages/auth/email-link-pages")), "ForgotPage"),
});

const reset = createRoute({
  getParentRoute: () => root,
  path: "/auth/reset",
  component: lazyRouteComponent(() => reachablePart(import("./pages/auth/email-link-pages")), "ResetPage"),
});

const secondFactor = createRoute({
  getParentRoute: () => root,
  path: "/auth/second-factor",
  validateSearch: authSearch,
  component: lazyRouteComponent(() => reachablePart(import("./pages/auth/second-factor-page")), "SecondFactorPage"),
});

const setup = createRoute({
  getParentRoute: () => root,
  path: "/setup",
  component: lazyRouteComponent(() => reachablePart(import("./pages/auth/setup-page")), "SetupPage"),
});

const shared = createRoute({
  getParentRoute: () => root,
  path: "/shared",
  component: lazyRouteComponent(() => reachablePart(import("./pages/shared/shared-page")), "SharedPage"),
});

/** The pages that there are over a folder of runs. */
const OF_FOLDER = /^\/runs$|^\/jobs\/[^/]+$|^\/projects\/[^/]+\/jobs\/(?!new)[^/]+$/;

/** Everything below this route is only for people who are signed in; others are sent to sign in and come back. */
const app = createRoute({
  getParentRoute: () => root,
  id: "app",
  beforeLoad: async ({ context, location }) => {
    const state = await context.queryClient.ensureQueryData(authStateQuery);
    if (state.user === null) throw redirect({ to: "/auth", search: { next: location.href } });
    if (state.folder !== null && !OF_FOLDER.test(location.pathname)) throw redirect({ to: "/runs", replace: true });
  },
  component: lazyRouteComponent(() => reachablePart(import("./shell/app-layout")), "AppLayout"),
});

/** Every page of the app fails and loads inside its frame. */
const appPage = { getParentRoute: () => app, errorComponent: PageError, pendingComponent: PagePending };

const dashboard = createRoute({
  ...appPage,
  path: "/dashboard",
  component: lazyRouteComponent(() => reachablePart(import("./pages/dashboard/dashboard-page")), "DashboardPage"),
});

const projects = createRoute({
  ...appPage,
  path: "/projects",
  validateSearch: projectsSearch,
  component: lazyRouteComponent(() => reachablePart(import("./pages/projects/projects-page")), "ProjectsPage"),
});

const project = createRoute({
  ...appPage,
  path: "/projects/$projectId",
  component: lazyRouteComponent(() => reachablePart(import("./pages/projects/project-page")), "ProjectPage"),
});

const newJobInProject = createRoute({
  ...appPage,
  path: "/projects/$projectId/jobs/new",
  validateSearch: newJobSearch,
  component: lazyRouteComponent(() => reachablePart(import("./pages/new-job/new-job-page")), "NewJobInProjectPage"),
});

const job = createRoute({
  ...appPage,
  path: "/projects/$projectId/jobs/$jobId",
  validateSearch: jobSearch,
  component: lazyRouteComponent(() => reachablePart(import("./pages/job/job-page")), "JobPage"),
});

const runs = createRoute({
  ...appPage,
  path: "/runs",
  validateSearch: runsSearch,
  component: lazyRouteComponent(() => reachablePart(import("./pages/runs/runs-page")), "RunsPage"),
});

/** The addresses of the two pages that the run list replaced. */
const jobs = createRoute({
  ...appPage,
  path: "/jobs",
  validateSearch: jobsSearch,
  beforeLoad: ({ search }) => {
    throw redirect({ to: "/runs", search: runsOfJobs(search), replace: true });
  },
});

const newJob = createRoute({
  ...appPage,
  path: "/jobs/new",
  component: lazyRouteComponent(() => reachablePart(import("./pages/new-job/new-job-page")), "NewJobPage"),
});

/** A short address for emails and scripts, which know a job but not its project. */
const jobById = createRoute({
  ...appPage,
  path: "/jobs/$jobId",
  validateSearch: jobSearch,
  beforeLoad: async ({ context, params, search }) => {
    const { project_id: projectId } = await context.queryClient.ensureQueryData(jobQuery(params.jobId));
    throw redirect({ to: "/projects/$projectId/jobs/$jobId", params: { projectId, jobId: params.jobId }, search, replace: true });
  },
});

const datasets = createRoute({
  ...appPage,
  path: "/datasets",
  validateSearch: projectsSearch,
  component: lazyRouteComponent(() => reachablePart(import("./pages/datasets/datasets-page")), "DatasetsPage"),
});

const dataset = createRoute({
  ...appPage,
  path: "/datasets/$datasetId",
  component: lazyRouteComponent(() => reachablePart(import("./pages/datasets/dataset-page")), "DatasetPage"),
});

const models = createRoute({
  ...appPage,
  path: "/models",
  component: lazyRouteComponent(() => reachablePart(import("./pages/models/models-page")), "ModelsPage"),
});

const finetune = createRoute({
  ...appPage,
  path: "/finetune",
  validateSearch: finetuneSearch,
  component: lazyRouteComponent(() => reachablePart(import("./pages/finetune/finetune-page")), "FinetunePage"),
});

const script = createRoute({
  ...appPage,
  path: "/script",
  validateSearch: scriptSearch,
  component: lazyRouteComponent(() => reachablePart(import("./pages/script/script-page")), "ScriptPage"),
});

const checkpoints = createRoute({
  ...appPage,
  path: "/checkpoints",
  validateSearch: checkpointsSearch,
  component: lazyRouteComponent(() => reachablePart(import("./pages/checkpoints/checkpoints-page")), "CheckpointsPage"),
});

const compare = createRoute({
  ...appPage,
  path: "/compare",
  validateSearch: compareSearch,
  beforeLoad: ({ search }) => {
    throw redirect({ to: "/runs", search: { run: search.job?.join(",") }, replace: true });
  },
});

const playground = createRoute({
  ...appPage,
  path: "/playground",
  validateSearch: playgroundSearch,
  component: lazyRouteComponent(() => reachablePart(import("./pages/playground/playground-page")), "PlaygroundPage"),
});

const providers = createRoute({
  ...appPage,
  path: "/providers",
  validateSearch: providersSearch,
  component: lazyRouteComponent(() => reachablePart(import("./pages/providers/providers-page")), "ProvidersPage"),
});

const settings = createRoute({
  ...appPage,
  path: "/settings",
  validateSearch: settingsSearch,
  component: lazyRouteComponent(() => reachablePart(import("./pages/settings/settings-page")), "SettingsPage"),
});

const routeTree = root.addChildren([
  landing,
  auth,
  verify,
  forgot,
  reset,
  secondFactor,
  setup,
  shared,
  app.addChildren([dashboard, projects, project, newJobInProject, job, runs, jobs, newJob, jobById, datasets, dataset, models, finetune, script, checkpoints, compare, playground, providers, settings]),
]);

export const router = createRouter({
  routeTree,
  context: { queryClient },
  defaultPreload: "intent",
  // The query cache decides what is fresh; a second cache would only disagree with it.
  defaultPreloadStaleTime: 0,
  defaultPendingMs: 200,
  defaultPendingComponent: BarePagePending,
  defaultErrorComponent: BarePageError,
  defaultNotFoundComponent: NotFound,
  scrollRestoration: true,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}

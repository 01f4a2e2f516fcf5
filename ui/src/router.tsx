import { createRouter } from "@tanstack/react-router";
import { queryClient } from "@/api/query-client";
import { routeTree } from "./routes";
import { BarePageError } from "./shell/bare-page-error";
import { NotFound } from "./shell/not-found";
import { BarePagePending } from "./shell/page-pending";

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

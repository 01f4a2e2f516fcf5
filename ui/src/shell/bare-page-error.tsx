import type { ErrorComponentProps } from "@tanstack/react-router";
import { BarePage } from "./bare-page";
import { PageError } from "./page-error";

/** For failures outside the app's own pages, or before it is known who is there. */
export function BarePageError(failure: ErrorComponentProps) {
  return (
    <BarePage>
      <PageError {...failure} />
    </BarePage>
  );
}

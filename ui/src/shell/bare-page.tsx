import type { ReactNode } from "react";
import { Brand } from "./brand";

/** A page with nothing around it but the way home. */
export function BarePage({ children }: { children: ReactNode }) {
  return (
    <div className="mx-auto flex min-h-dvh max-w-5xl flex-col px-5 py-5">
      <header>
        <Brand to="/" />
      </header>
      <main className="grid flex-1 place-items-center">{children}</main>
    </div>
  );
}

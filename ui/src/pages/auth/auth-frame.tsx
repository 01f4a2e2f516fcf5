import type { ReactNode } from "react";
import { BloomMark } from "@/components/bloom-mark";
import { Brand } from "@/shell/brand";

type AuthFrameProps = { title: string; children: ReactNode; footer?: ReactNode };

/** The page around every form that concerns signing in. */
export function AuthFrame({ title, children, footer }: AuthFrameProps) {
  return (
    <div className="relative isolate flex min-h-dvh flex-col overflow-hidden bg-rail px-4 py-5">
      <BloomMark className="pointer-events-none absolute top-1/2 left-1/2 -z-10 size-[760px] -translate-x-1/2 -translate-y-1/2 opacity-[0.07] [&_ellipse]:stroke-[0.12]" />
      <header className="mx-auto w-full max-w-5xl">
        <Brand to="/" />
      </header>
      <main className="grid flex-1 place-items-center py-8">
        <div className="w-full max-w-[400px]">
          <div className="rounded-2xl border border-line-strong bg-card p-6 shadow-2xl shadow-black/30">
            <h1 className="mb-4 text-2xl font-[640] tracking-[-0.015em]">{title}</h1>
            {children}
          </div>
          {footer && <div className="mt-4 text-center text-sm text-dim">{footer}</div>}
        </div>
      </main>
    </div>
  );
}

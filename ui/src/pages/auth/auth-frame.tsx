/** The frame of the pages for signing in, and notes that several of them show. */
import { useQuery } from "@tanstack/react-query";
import { KeyRound } from "lucide-react";
import type { ReactNode } from "react";
import { authStateQuery } from "@/api/auth";
import { Notice } from "@/components/notice";
import { BloomMark, Brand } from "@/shell/page";

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

/** A fresh server: nobody can sign in yet, and only who can read its output may become the first administrator. */
export function SetupPanel() {
  return (
    <div className="flex gap-3.5 rounded-card border border-teal-soft/30 bg-teal/10 px-4 py-3.5 text-left">
      <KeyRound aria-hidden className="mt-0.5 size-4.5 shrink-0 text-teal-soft" />
      <div>
        <p className="font-[560]">This server has no account yet</p>
        <p className="mt-0.5 text-dim">
          Open the one-time link that the server printed at startup. On that page you create the first account, which
          becomes the administrator.
        </p>
      </div>
    </div>
  );
}

export function IncompleteLink() {
  return (
    <Notice tone="attention">
      <p className="font-[560]">This link is incomplete.</p>
      <p className="mt-1 text-dim">
        Open the complete link from the email again. The page removes the secret from the address after reading it, so
        reloading this page does not work.
      </p>
    </Notice>
  );
}

/** Nobody should wait for a mail that cannot come. */
export function OutboxNote() {
  const { data: state } = useQuery(authStateQuery);
  if (state?.mail !== "outbox") return null;
  return (
    <p className="mt-2 text-sm text-dim">
      This server cannot send email, so you will not receive a message. The link is in the server log and in the outbox
      folder of the server. Ask the administrator to send you the link.
    </p>
  );
}

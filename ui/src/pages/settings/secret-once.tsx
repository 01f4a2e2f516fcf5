import type { ReactNode } from "react";
import { Button } from "@/components/button";
import { CopyButton } from "@/components/copy-button";
import { Notice } from "@/components/notice";

type SecretOnceProps = { secret: string; label: string; children: ReactNode; onClose: () => void };

/** Something the server will never show again. */
export function SecretOnce({ secret, label, children, onClose }: SecretOnceProps) {
  return (
    <div className="grid gap-4">
      <Notice tone="attention" role="status">
        {children}
      </Notice>
      <div className="flex items-center gap-3 rounded-control border border-line-strong bg-rail py-2 pr-2 pl-3">
        <code className="min-w-0 flex-1 font-mono text-xs break-all select-all">{secret}</code>
        <CopyButton text={secret} label={label} />
      </div>
      <Button variant="primary" onClick={onClose} className="justify-self-end">
        Done
      </Button>
    </div>
  );
}

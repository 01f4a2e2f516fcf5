import { useNavigate } from "@tanstack/react-router";
import { LogOut } from "lucide-react";
import { useState } from "react";
import { signOut } from "@/api/auth";
import { setSignedOut } from "@/api/auth-state";
import { ApiProblem, sentenceOf } from "@/api/problem";
import { Button } from "@/components/button";
import { Initials } from "@/components/initials";
import { toastFailure } from "@/components/toasts";
import { stopUploads } from "@/uploads/upload-store";
import { useCurrentUser } from "./current-user";

export function AccountCorner() {
  const user = useCurrentUser();
  const navigate = useNavigate();
  const [pending, setPending] = useState(false);

  async function leave() {
    setPending(true);
    try {
      await signOut();
    } catch (error) {
      // A session that has already ended is what was asked for.
      if (!(error instanceof ApiProblem && error.status === 401)) {
        setPending(false);
        toastFailure(`You are still signed in. ${sentenceOf(error)}`);
        return;
      }
    }
    // Leave first: the pages of the app must not be redrawn without anybody in them.
    await navigate({ to: "/" });
    stopUploads();
    await setSignedOut();
  }

  return (
    <div className="flex items-center gap-2.5 border-t border-line px-1 pt-3">
      <Initials name={user.name} />
      <div className="min-w-0 flex-1 leading-tight">
        <div className="truncate font-[540]">{user.name}</div>
        <div className="truncate text-2xs text-dim" title={user.email}>
          {user.email}
        </div>
      </div>
      <Button variant="ghost" size="icon" aria-label="Sign out" title="Sign out" pending={pending} onClick={() => void leave()}>
        {!pending && <LogOut aria-hidden />}
      </Button>
    </div>
  );
}

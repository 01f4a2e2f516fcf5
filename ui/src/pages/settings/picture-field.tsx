/** A person's own picture: shown, replaced and removed. */
import { useId, useState } from "react";
import { changePicture, removePicture } from "@/api/account";
import { sentenceOf } from "@/api/problem";
import { Button } from "@/components/button";
import { Notice } from "@/components/notice";
import { toast } from "@/components/toasts";
import { Avatar } from "@/shell/avatar";
import { useCurrentUser } from "@/shell/session";

export function PictureField() {
  const user = useCurrentUser();
  const [pending, setPending] = useState<"change" | "remove" | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const input = useId();

  async function run(what: "change" | "remove", action: () => Promise<unknown>, done: string) {
    setPending(what);
    setFailure(null);
    try {
      await action();
      toast(done);
    } catch (error) {
      setFailure(sentenceOf(error));
    } finally {
      setPending(null);
    }
  }

  return (
    <div className="mb-4 grid gap-2">
      <div className="flex flex-wrap items-center gap-3">
        <Avatar person={user} className="size-16 text-lg" />
        <div className="flex flex-wrap gap-2">
          <input
            id={input}
            type="file"
            accept="image/png,image/jpeg,image/webp,image/gif"
            aria-label="Choose a picture"
            className="sr-only"
            onChange={(event) => {
              const file = event.target.files?.[0];
              // The same file can be chosen again after it was refused.
              event.target.value = "";
              if (file) void run("change", () => changePicture(file), "Your picture was changed.");
            }}
          />
          <Button size="small" pending={pending === "change"} onClick={() => document.getElementById(input)?.click()}>
            {user.image === null ? "Add a picture" : "Change picture"}
          </Button>
          {user.image !== null && (
            <Button size="small" pending={pending === "remove"} onClick={() => void run("remove", removePicture, "Your picture was removed.")}>
              Remove picture
            </Button>
          )}
        </div>
      </div>
      <p className="text-2xs text-dim">PNG, JPEG, WebP or GIF, at most 4 MiB. The middle of the image is kept. Its metadata, such as the location, is removed.</p>
      {failure !== null && (
        <Notice tone="bad" role="alert">
          {failure}
        </Notice>
      )}
    </div>
  );
}

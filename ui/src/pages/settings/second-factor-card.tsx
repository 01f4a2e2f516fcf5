/** The authenticator app and the recovery codes. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { disableTotp, enableTotp, factorsQuery, prepareTotp, replaceRecoveryCodes } from "@/api/factors";
import { sentenceOf } from "@/api/problem";
import type { Factors } from "@/api/types";
import { Button, CopyButton } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { ConfirmDialog, Dialog } from "@/components/dialog";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { Badge, Notice } from "@/components/notice";
import { TimeAgo } from "@/components/time-ago";
import { toast } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { TextField } from "@/forms/field";
import { codeRule } from "@/forms/rules";
import { z } from "@/forms/zod";

type Setup = Awaited<ReturnType<typeof prepareTotp>>;

export function SecondFactorCard() {
  const factors = useQuery(factorsQuery);
  const enabled = factors.data !== undefined && (factors.data.totp_enabled_at !== null || factors.data.passkeys.length > 0);
  return (
    <Card className="lg:col-span-2">
      <CardHeader title="Second factor" note={factors.data && <Badge tone={enabled ? "good" : "neutral"}>{enabled ? "on" : "off"}</Badge>} />
      <p className="mb-3.5 text-dim">
        With a second factor, signing in asks for your password, and for a passkey or a code from an authenticator app.
      </p>
      <Loaded query={factors} skeleton={<SkeletonRows rows={2} />}>
        {(known) => <AppState factors={known} />}
      </Loaded>
    </Card>
  );
}

function AppState({ factors }: { factors: Factors }) {
  const [setup, setSetup] = useState<Setup | null>(null);
  const [codes, setCodes] = useState<string[] | null>(null);
  const [asking, setAsking] = useState<"disable" | "replace" | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const [pending, setPending] = useState(false);
  const { totp_enabled_at: enabledAt, recovery_codes_left: left, passkeys } = factors;

  async function start() {
    setPending(true);
    setFailure(null);
    try {
      setSetup(await prepareTotp());
    } catch (error) {
      setFailure(sentenceOf(error));
    } finally {
      setPending(false);
    }
  }

  function finish(newCodes: string[]) {
    setSetup(null);
    toast("The authenticator app is on.");
    if (newCodes.length > 0) setCodes(newCodes);
  }

  return (
    <div className="grid gap-3.5">
      {failure && (
        <Notice tone="bad" role="alert">
          {failure}
        </Notice>
      )}
      <p>Authenticator app: {enabledAt === null ? "off" : <>on since <TimeAgo at={enabledAt} /></>}</p>
      {(enabledAt !== null || passkeys.length > 0) && (
        <p>
          Recovery codes left: {left} {left < 3 && <Badge tone="bad">create new codes</Badge>}
        </p>
      )}
      <div className="flex flex-wrap justify-end gap-2">
        {(enabledAt !== null || passkeys.length > 0) && <Button onClick={() => setAsking("replace")}>New recovery codes</Button>}
        {enabledAt === null ? (
          <Button variant="primary" pending={pending} onClick={() => void start()}>
            Set up an authenticator app
          </Button>
        ) : (
          <Button onClick={() => setAsking("disable")}>Turn off</Button>
        )}
      </div>
      <Dialog open={setup !== null} onOpenChange={(open) => !open && setSetup(null)} title="Set up an authenticator app">
        {setup && <SetupForm setup={setup} onDone={finish} onCancel={() => setSetup(null)} />}
      </Dialog>
      <RecoveryCodesDialog codes={codes} onClose={() => setCodes(null)} />
      <ConfirmDialog
        open={asking === "disable"}
        onOpenChange={(open) => !open && setAsking(null)}
        title="Turn off the authenticator app?"
        action="Turn off"
        onConfirm={async () => {
          await disableTotp();
          toast("The authenticator app is off.");
        }}
      >
        {passkeys.length > 0 ? "Signing in then asks for your password and a passkey." : "Signing in then asks for your password only. Your recovery codes stop working."}
      </ConfirmDialog>
      <ConfirmDialog
        open={asking === "replace"}
        onOpenChange={(open) => !open && setAsking(null)}
        title="Create new recovery codes?"
        action="Create new codes"
        onConfirm={async () => setCodes(await replaceRecoveryCodes())}
      >
        Your old recovery codes stop working.
      </ConfirmDialog>
    </div>
  );
}

const setupRules = z.object({ code: codeRule });

type SetupFormProps = { setup: Setup; onDone: (codes: string[]) => void; onCancel: () => void };

function SetupForm({ setup, onDone, onCancel }: SetupFormProps) {
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: setupRules,
    defaultValues: { code: "" },
    submit: async ({ code }) => onDone(await enableTotp(code)),
  });
  return (
    <ApiForm label="Set up an authenticator app" failure={failure} onSubmit={onSubmit}>
      <p>Scan the QR code with your authenticator app, then enter the code that the app shows.</p>
      <img src={setup.qr_code} alt="QR code for the authenticator app" className="w-48 justify-self-center rounded-control bg-white" />
      <div>
        <p className="mb-1.5 text-xs text-dim">If you cannot scan it, enter this key in the app:</p>
        <div className="flex items-center gap-3 rounded-control border border-line-strong bg-rail py-2 pr-2 pl-3">
          <code className="min-w-0 flex-1 font-mono text-xs break-all select-all">{setup.secret}</code>
          <CopyButton text={setup.secret} label="Copy the key" />
        </div>
      </div>
      <TextField label="Code" inputMode="numeric" autoComplete="one-time-code" {...field("code")} />
      <div className="flex justify-end gap-2">
        <Button onClick={onCancel}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Turn on
        </Button>
      </div>
    </ApiForm>
  );
}

type RecoveryCodesDialogProps = { codes: string[] | null; onClose: () => void };

/** Shown once: the server keeps only what it needs to recognize a code. */
export function RecoveryCodesDialog({ codes, onClose }: RecoveryCodesDialogProps) {
  return (
    <Dialog open={codes !== null} onOpenChange={(open) => !open && onClose()} title="Your recovery codes">
      <div className="grid gap-4">
        <Notice tone="attention" role="status">
          Store these codes in a safe place. If you lose your second factor, each code lets you sign in once. The codes are not shown again.
        </Notice>
        <ol className="grid gap-1 rounded-control border border-line-strong bg-rail px-3 py-2.5 font-mono text-xs select-all">
          {codes?.map((code) => <li key={code}>{code}</li>)}
        </ol>
        <div className="flex flex-wrap justify-end gap-2">
          <CopyButton text={(codes ?? []).join("\n")} label="Copy all recovery codes" className="h-8.5 max-sm:h-10" />
          <Button variant="primary" onClick={onClose}>
            I have stored the codes
          </Button>
        </div>
      </div>
    </Dialog>
  );
}

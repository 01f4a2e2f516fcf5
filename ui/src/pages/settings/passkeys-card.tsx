/** Passkeys: add, rename, delete. */
import { useQuery } from "@tanstack/react-query";
import { Fingerprint, Plus } from "lucide-react";
import { useState } from "react";
import { addPasskey, deletePasskey, factorsQuery, renamePasskey } from "@/api/factors";
import { NewPasskey } from "@/api/request-fields";
import type { Passkey } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { type Column, DataTable } from "@/components/data-table";
import { ConfirmDialog, Dialog } from "@/components/dialog";
import { EmptyState, Loaded, SkeletonRows } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { TimeAgo } from "@/components/time-ago";
import { toast } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { TextField } from "@/forms/field";
import { textRule } from "@/forms/rules";
import { z } from "@/forms/zod";
import { RecoveryCodesDialog } from "./second-factor-card";
import { deviceName } from "./sessions-tab";

export function PasskeysCard() {
  const factors = useQuery(factorsQuery);
  const [naming, setNaming] = useState<"new" | Passkey | null>(null);
  const [doomed, setDoomed] = useState<Passkey | null>(null);
  const [codes, setCodes] = useState<string[] | null>(null);

  const columns: Column<Passkey>[] = [
    { header: "Name", lead: true, cell: (passkey) => <span className="font-[540] wrap-anywhere">{passkey.name}</span> },
    { header: "Added", cell: (passkey) => <TimeAgo at={passkey.created_at} /> },
    { header: "Last used", cell: (passkey) => (passkey.last_used_at ? <TimeAgo at={passkey.last_used_at} /> : "never") },
    {
      header: "Actions",
      quiet: true,
      end: true,
      cell: (passkey) => (
        <span className="inline-flex flex-wrap justify-end gap-2">
          <Button size="small" aria-label={`Rename the passkey ${passkey.name}`} onClick={() => setNaming(passkey)}>
            Rename
          </Button>
          <Button size="small" aria-label={`Delete the passkey ${passkey.name}`} onClick={() => setDoomed(passkey)}>
            Delete
          </Button>
        </span>
      ),
    },
  ];

  const add = (
    <Button variant="primary" onClick={() => setNaming("new")}>
      <Plus aria-hidden />
      Add a passkey
    </Button>
  );

  return (
    <Card className="lg:col-span-2">
      <CardHeader title="Passkeys">{factors.data && factors.data.passkeys.length > 0 && factors.data.passkeys_unavailable === null && add}</CardHeader>
      <Loaded query={factors} skeleton={<SkeletonRows rows={2} />}>
        {({ passkeys, passkeys_unavailable: unavailable }) => (
          <div className="grid gap-3.5">
            {unavailable && <Notice>{unavailable}</Notice>}
            {passkeys.length > 0 && <DataTable label="Passkeys" columns={columns} rows={passkeys} rowKey={(passkey) => passkey.id} />}
            {passkeys.length === 0 && !unavailable && (
              <EmptyState icon={Fingerprint} title="No passkeys yet." action={add}>
                A passkey signs you in with your fingerprint, face, PIN or security key. After you add one, signing in with your password also asks for a second factor.
              </EmptyState>
            )}
          </div>
        )}
      </Loaded>
      <Dialog open={naming !== null} onOpenChange={(open) => !open && setNaming(null)} title={naming === "new" ? "Add a passkey" : "Rename the passkey"}>
        {naming && (
          <NameForm
            passkey={naming === "new" ? null : naming}
            onClose={() => setNaming(null)}
            onAdded={(added) => {
              toast("The passkey was added.");
              if (added.length > 0) setCodes(added);
            }}
          />
        )}
      </Dialog>
      <RecoveryCodesDialog codes={codes} onClose={() => setCodes(null)} />
      <ConfirmDialog
        open={doomed !== null}
        onOpenChange={(open) => !open && setDoomed(null)}
        title={`Delete the passkey “${doomed?.name ?? ""}”?`}
        action="Delete passkey"
        onConfirm={async () => {
          if (doomed === null) return;
          await deletePasskey(doomed.id);
          toast(`Passkey “${doomed.name}” deleted.`);
        }}
      >
        It no longer signs you in. Your device may still offer it: delete it there too.
      </ConfirmDialog>
    </Card>
  );
}

const nameRules = z.object({ name: textRule(NewPasskey.name).min(1, "Enter a name for the passkey.") });

type NameFormProps = { passkey: Passkey | null; onClose: () => void; onAdded: (codes: string[]) => void };

function NameForm({ passkey, onClose, onAdded }: NameFormProps) {
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: nameRules,
    defaultValues: { name: passkey?.name ?? deviceName(navigator.userAgent) },
    submit: async ({ name }) => {
      if (passkey) await renamePasskey(passkey.id, name);
      else onAdded(await addPasskey(name));
      onClose();
    },
  });
  return (
    <ApiForm label={passkey ? "Rename the passkey" : "Add a passkey"} failure={failure} onSubmit={onSubmit}>
      <TextField label="Name" autoComplete="off" help={passkey ? undefined : "So that you recognize the passkey later."} {...field("name")} />
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          {passkey ? "Rename" : "Add passkey"}
        </Button>
      </div>
    </ApiForm>
  );
}

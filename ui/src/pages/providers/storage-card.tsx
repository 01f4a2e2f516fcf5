/** Where jobs on rented machines keep their files: this server, or a bucket that an administrator sets up here. */
import { useQuery } from "@tanstack/react-query";
import { Check, Database, Minus, X } from "lucide-react";
import { useState } from "react";
import { BucketIn } from "@/api/request-fields";
import { type BucketTest, checkStorageBucket, removeStorageBucket, setStorageBucket, type StorageBucket, storageBucketQuery } from "@/api/storage-bucket";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { ConfirmDialog, Dialog } from "@/components/dialog";
import { Facts } from "@/components/figures";
import { EmptyState, Loaded, SkeletonRows } from "@/components/loaded";
import { TextWithCode } from "@/components/notice";
import { toast, useAction } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { PasswordField, SelectField, TextField } from "@/forms/field";
import { textRule } from "@/forms/rules";
import { z } from "@/forms/zod";

/** The bucket, whether it works, and how to get one. */
export function StorageCard() {
  const bucket = useQuery(storageBucketQuery);
  const [editing, setEditing] = useState(false);
  const [leaving, setLeaving] = useState(false);
  const [test, setTest] = useState<BucketTest | null>(null);
  const check = useAction(async () => {
    setTest(null);
    setTest(await checkStorageBucket());
  });

  const setUp = (
    <Button variant="primary" onClick={() => setEditing(true)}>
      Set up a bucket
    </Button>
  );
  return (
    <Card aria-label="Storage of rented jobs">
      <CardHeader title="Storage of rented jobs" />
      <Loaded query={bucket} skeleton={<SkeletonRows rows={2} />}>
        {(found) => (
          <div className="grid gap-3">
            {found.bucket === null ? (
              <EmptyState icon={Database} title="No bucket is set up." action={setUp} small>
                {found.server_store
                  ? "Machines exchange files with this server. A bucket also takes results while this server is off."
                  : "Files and checkpoints of rented jobs go through a bucket at Cloudflare R2, Backblaze B2, AWS S3 or another service with the S3 protocol."}
              </EmptyState>
            ) : (
              <>
                <div className="max-w-xl">
                  <Facts
                    facts={[
                      ["Bucket", found.bucket],
                      ["Endpoint", found.endpoint || "address of the service"],
                      ["Region", found.region || "–"],
                      ["Access key", found.access_key || "–"],
                      ["Set up by", found.source === "environment" ? "the operator, with BLOOM_STORAGE_*" : "an administrator"],
                    ]}
                  />
                </div>
                {test && <TestSteps test={test} />}
                <div className="flex flex-wrap gap-2">
                  <Button pending={check.pending} onClick={check.run}>
                    Test the bucket
                  </Button>
                  {found.source === "settings" && (
                    <>
                      <Button onClick={() => setEditing(true)}>Change</Button>
                      <Button onClick={() => setLeaving(true)}>Remove</Button>
                    </>
                  )}
                </div>
              </>
            )}
            {!found.server_store && found.server_store_reason && (
              <p className="text-xs text-faint">
                This server itself cannot be the store: <TextWithCode text={found.server_store_reason} />
              </p>
            )}
            {editing && (
              <Dialog
                open
                onOpenChange={(open) => !open && setEditing(false)}
                title={found.bucket === null ? "Set up a bucket" : "Change the bucket"}
                description="The bucket is tested before it is saved. The secret key is stored encrypted and never displayed again."
              >
                <BucketForm bucket={found} onClose={() => setEditing(false)} />
              </Dialog>
            )}
          </div>
        )}
      </Loaded>
      <ConfirmDialog
        open={leaving}
        onOpenChange={setLeaving}
        title="Remove the bucket?"
        action="Remove bucket"
        onConfirm={async () => {
          await removeStorageBucket();
          setTest(null);
          toast("The bucket is no longer used.");
        }}
      >
        Nothing is deleted in the bucket. New jobs use another store, if there is one.
      </ConfirmDialog>
    </Card>
  );
}

const MARKS = [
  [true, Check, "text-success", "succeeded"],
  [false, X, "text-danger-soft", "failed"],
  [null, Minus, "text-faint", "not tried"],
] as const;

function TestSteps({ test }: { test: BucketTest }) {
  return (
    <ol aria-label="Test of the bucket" className="grid gap-1.5 text-sm">
      {test.steps.map(({ name, title, ok, problem }) => {
        const [, Icon, colour, state] = MARKS.find(([value]) => value === ok) ?? MARKS[2];
        return (
          <li key={name} className="flex gap-2">
            <Icon aria-hidden className={`mt-0.5 size-4 shrink-0 ${colour}`} />
            <span className="min-w-0">
              {title} <span className="sr-only">{state}</span>
              {problem && <span className="block wrap-anywhere text-danger-soft">{problem}</span>}
            </span>
          </li>
        );
      })}
    </ol>
  );
}

const KINDS = [
  ["s3", "S3-compatible"],
  ["gcs", "Google Cloud Storage"],
  ["azure", "Azure Blob Storage"],
] as const;
const rules = z.object({
  kind: z.enum(BucketIn.kind.enum),
  bucket: textRule(BucketIn.bucket).min(1, "Enter the name of the bucket."),
  endpoint: textRule(BucketIn.endpoint),
  region: textRule(BucketIn.region),
  access_key: textRule(BucketIn.access_key),
  secret_key: textRule(BucketIn.secret_key).min(1, "Enter the secret key."),
  prefix: textRule(BucketIn.prefix),
});

function BucketForm({ bucket, onClose }: { bucket: StorageBucket; onClose: () => void }) {
  const [test, setTest] = useState<BucketTest | null>(null);
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: {
      kind: bucket.kind ?? BucketIn.kind.default,
      bucket: bucket.bucket ?? "",
      endpoint: bucket.endpoint ?? "",
      region: bucket.region ?? BucketIn.region.default,
      access_key: bucket.access_key ?? "",
      secret_key: "",
      prefix: bucket.prefix ?? "",
    },
    submit: async (values) => {
      setTest(null);
      const result = await setStorageBucket(values);
      setTest(result);
      if (!result.ok) return;
      toast("The bucket works and is saved. The next rented job uses it.");
      onClose();
    },
  });
  return (
    <ApiForm label="Storage bucket" failure={failure} onSubmit={onSubmit}>
      <Guides guides={bucket.guides} />
      <div className="grid gap-4 sm:grid-cols-2">
        <SelectField label="Service" options={KINDS} {...field("kind")} />
        <TextField label="Bucket" autoComplete="off" {...field("bucket")} />
      </div>
      <TextField label="Endpoint" optional autoComplete="off" help="Without the name of the bucket. Leave it empty for AWS, Google and Azure." {...field("endpoint")} />
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField label="Region" autoComplete="off" {...field("region")} />
        <TextField label="Folder in the bucket" optional autoComplete="off" {...field("prefix")} />
      </div>
      <TextField label="Access key ID" optional autoComplete="off" help="At Azure the storage account. At Google empty." {...field("access_key")} />
      <PasswordField label="Secret key" secret="secret key" autoComplete="off" {...field("secret_key")} />
      <div aria-live="polite">{test && <TestSteps test={test} />}</div>
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Test and save
        </Button>
      </div>
    </ApiForm>
  );
}

/** How to create a bucket and a key, at the services that people use most. */
function Guides({ guides }: { guides: StorageBucket["guides"] }) {
  return (
    <div className="grid gap-1 text-sm">
      {guides.map(({ name, title, page, endpoint, region, steps }) => (
        <details key={name}>
          <summary className="w-max cursor-pointer py-0.5 text-violet-soft">How to create a bucket at {title}</summary>
          <ol className="mt-1.5 mb-2 grid list-decimal gap-1 pl-5 text-dim">
            {steps.map((step) => (
              <li key={step}>{step}</li>
            ))}
          </ol>
          <p className="mb-2 text-xs wrap-anywhere text-faint">
            {endpoint && <>Endpoint: {endpoint} · </>}Region: {region} ·{" "}
            <a href={page} target="_blank" rel="noreferrer" className="underline underline-offset-2">
              Open {title}
            </a>
          </p>
        </details>
      ))}
    </div>
  );
}

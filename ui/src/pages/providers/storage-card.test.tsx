// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it } from "vitest";
import { queryClient } from "@/api/client";
import type { BucketTest, StorageBucket } from "@/api/storage-bucket";
import { serveFrom } from "@/test-server";
import { StorageCard } from "./storage-card";

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

const nothing: StorageBucket = {
  source: null,
  kind: null,
  bucket: null,
  access_key: null,
  endpoint: null,
  region: null,
  prefix: null,
  set_at: null,
  server_store: false,
  server_store_reason: "This server has no public address (BLOOM_PUBLIC_URL).",
  guides: [{ name: "r2", title: "Cloudflare R2", page: "https://r2.example", endpoint: "https://<id>.r2.example", region: "auto", steps: ["Create a bucket."] }],
};
const found: StorageBucket = { ...nothing, source: "settings", kind: "s3", bucket: "runs", access_key: "AK", endpoint: "https://r2.example", region: "auto", prefix: "" };
const step = (name: BucketTest["steps"][number]["name"], ok: boolean | null, problem: string | null = null) => ({ name, title: name, ok, problem });
const works: BucketTest = { ok: true, steps: [step("write", true), step("list", true), step("upload", true), step("delete", true)] };
const wrongKey: BucketTest = { ok: false, steps: [step("write", false, "The access key is unknown."), step("list", null), step("upload", null), step("delete", null)] };

const show = () =>
  render(
    <QueryClientProvider client={queryClient}>
      <StorageCard />
    </QueryClientProvider>,
  );

afterEach(() => {
  cleanup();
  queryClient.clear();
});

it("shows the step that failed and keeps the form, then saves what works", async () => {
  const results = [wrongKey, works];
  let saved = false;
  const sent = serveFrom(({ method, path }) => {
    if (method === "PUT") {
      saved = results.length === 1;
      return { body: results.shift() };
    }
    return { body: path === "/api/storage-bucket" ? (saved ? found : nothing) : {} };
  });
  show();
  await userEvent.click(await screen.findByRole("button", { name: "Set up a bucket" }));
  const form = within(screen.getByRole("form", { name: "Storage bucket" }));
  expect(form.getByText("How to create a bucket at Cloudflare R2")).toBeDefined();
  await userEvent.type(form.getByLabelText("Bucket"), "runs");
  await userEvent.type(form.getByLabelText(/^Access key ID/), "AK");
  const secret = form.getByLabelText<HTMLInputElement>("Secret key");
  expect(secret.type).toBe("password");
  await userEvent.type(secret, "shh");
  await userEvent.click(form.getByRole("button", { name: "Test and save" }));
  expect(await form.findByText("The access key is unknown.")).toBeDefined();
  expect(form.getAllByText("not tried")).toHaveLength(3);
  await userEvent.click(form.getByRole("button", { name: "Test and save" }));
  await waitFor(() => expect(screen.queryByRole("form")).toBeNull());
  expect(await screen.findByText("runs")).toBeDefined();
  expect(sent.filter(({ method }) => method === "PUT").at(-1)?.body).toEqual({ kind: "s3", bucket: "runs", endpoint: "", region: "us-east-1", access_key: "AK", secret_key: "shh", prefix: "" });
});

it("tests the bucket in use, and changes nothing that the operator set", async () => {
  serveFrom(({ method }) => ({ body: method === "POST" ? works : { ...found, source: "environment" } }));
  show();
  await userEvent.click(await screen.findByRole("button", { name: "Test the bucket" }));
  expect(await screen.findAllByText("succeeded")).toHaveLength(4);
  expect(screen.queryByRole("button", { name: "Remove" })).toBeNull();
});

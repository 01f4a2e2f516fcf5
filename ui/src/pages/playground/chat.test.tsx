// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import { Chat } from "./chat";

// Its link needs a router, which nothing here is about.
vi.mock("./code-panel", () => ({ CodePanel: () => null }));

type ModelRequest = { body: Record<string, unknown>; say: (text: string) => void; end: () => void; signal: AbortSignal };

let requests: ModelRequest[] = [];
let opened = 0;
let session: Record<string, unknown> | null = {};

const ready = { job: { id: "s", status: "running", config: {}, error_message: null }, state: "ready", models: ["base", "tuned"], context_length: 512, chat_template: true, last_used_at: null };

/** A server whose models write what the test tells them, when it tells them. */
async function serve(request: Request): Promise<Response> {
  const path = new URL(request.url).pathname;
  if (path === "/api/playground") {
    opened += 1;
    return Response.json(ready.job, { status: 201 });
  }
  if (path === "/api/playground/s") return session === null ? Response.json({ code: "not_found", detail: "The playground was deleted." }, { status: 404 }) : Response.json(session);
  const body = (await request.json()) as Record<string, unknown>;
  const encoder = new TextEncoder();
  const stream = new ReadableStream<Uint8Array>({
    start(controller) {
      const write = (data: string) => controller.enqueue(encoder.encode(`data: ${data}\n\n`));
      request.signal.addEventListener("abort", () => controller.error(new DOMException("aborted", "AbortError")));
      requests.push({
        body,
        signal: request.signal,
        say: (text) => write(JSON.stringify({ choices: [{ delta: { content: text }, finish_reason: null }] })),
        end() {
          write("[DONE]");
          controller.close();
        },
      });
    },
  });
  return new Response(stream, { headers: { "Content-Type": "text/event-stream" } });
}

beforeEach(() => {
  requests = [];
  opened = 0;
  session = ready;
  sessionStorage.clear();
  vi.stubGlobal("fetch", serve);
  vi.stubGlobal("matchMedia", () => ({ matches: true }));
});

afterEach(() => {
  cleanup();
  queryClient.clear();
  vi.unstubAllGlobals();
});

/** The page around a chat: it keeps the text that is not sent yet, also when another model is chosen. */
function Page() {
  const [draft, setDraft] = useState("");
  const [chosen, setChosen] = useState("j");
  return (
    <>
      <button onClick={() => setChosen("k")}>Choose another</button>
      <Chat key={chosen} source={{ job_id: chosen }} storageKey={chosen} draft={draft} onDraft={setDraft} />
    </>
  );
}

async function talk() {
  render(
    <QueryClientProvider client={queryClient}>
      <Page />
    </QueryClientProvider>,
  );
  await screen.findByText("Compare with base model");
  return userEvent.setup();
}

const box = () => screen.getByRole<HTMLTextAreaElement>("textbox", { name: "Your message" });
const answer = (name: string) => screen.getByRole("region", { name: `Answer of ${name}` });
const of = (model: string) => requests.find(({ body }) => body.model === model) as ModelRequest;

it("sends with Enter, not with Shift and Enter, and shows what both write as they write it", async () => {
  const user = await talk();
  await user.type(box(), "First{Shift>}{Enter}{/Shift}second{Enter}");
  await waitFor(() => expect(requests).toHaveLength(2));
  expect(of("tuned").body).toMatchObject({ messages: [{ role: "user", content: "First\nsecond" }], stream: true, temperature: 0.7 });
  expect((box() as HTMLTextAreaElement).value).toBe("");
  act(() => of("tuned").say("Seven"));
  await waitFor(() => expect(answer("Tuned").textContent).toContain("Seven"));
  expect(answer("Tuned").getAttribute("aria-busy")).toBe("true");
  act(() => of("tuned").say(" herons"));
  act(() => of("tuned").end());
  await waitFor(() => expect(answer("Tuned").getAttribute("aria-busy")).toBe("false"));
  expect(answer("Tuned").textContent).toContain("Seven herons");
  expect(answer("Base").getAttribute("aria-busy")).toBe("true");
});

it("only continues texts with a model that cannot chat", async () => {
  session = { ...ready, chat_template: false };
  const user = await talk();
  await user.type(await screen.findByRole("textbox", { name: "Text to continue" }), "ROMEO:{Enter}");
  await waitFor(() => expect(requests).toHaveLength(2));
  expect(of("tuned").body).toMatchObject({ prompt: "ROMEO:" });
  expect(screen.getByRole<HTMLButtonElement>("tab", { name: "Chat" }).disabled).toBe(true);
});

it("shows an answer of empty lines as an empty answer, not as an empty page", async () => {
  const user = await talk();
  await user.type(box(), "Hello{Enter}");
  await waitFor(() => expect(requests).toHaveLength(2));
  act(() => (of("base").say("\n".repeat(400)), of("base").end()));
  act(() => (of("tuned").say("One." + "\n".repeat(400) + "Two."), of("tuned").end()));
  await waitFor(() => expect(answer("Base").querySelector("p")?.textContent).toBe("The model returned an empty answer."));
  expect(answer("Tuned").textContent).toContain("One.\n\nTwo.");
});

it("stops when asked to, tells the server, and keeps what was written", async () => {
  const user = await talk();
  await user.click(screen.getByRole("checkbox", { name: "Compare with base model" }));
  await user.type(box(), "Hello{Enter}");
  await waitFor(() => expect(requests).toHaveLength(1));
  act(() => of("tuned").say("Half of"));
  await waitFor(() => expect(answer("Tuned").textContent).toContain("Half of"));
  await user.click(screen.getByRole("button", { name: "Stop" }));
  await screen.findByText("Stopped.");
  expect(of("tuned").signal.aborted).toBe(true);
  expect(answer("Tuned").textContent).toContain("Half of");
});

it("says that the model was unloaded, keeps the conversation, and loads it again on request", async () => {
  const user = await talk();
  await user.type(box(), "Hello{Enter}");
  await waitFor(() => expect(requests).toHaveLength(2));
  for (const one of requests) act(() => (one.say("Hi"), one.end()));
  await waitFor(() => expect(answer("Base").getAttribute("aria-busy")).toBe("false"));
  session = { ...ready, state: "ended", models: [], job: { ...ready.job, status: "completed", config: { idle_minutes: 10 } } };
  await act(() => queryClient.invalidateQueries({ queryKey: ["playground"] }));
  await screen.findByText(/for 10 minutes/);
  expect(answer("Tuned").textContent).toContain("Hi");
  expect((screen.getByRole("button", { name: "Send" }) as HTMLButtonElement).disabled).toBe(true);
  session = ready;
  await user.click(screen.getByRole("button", { name: "Load again" }));
  await screen.findByText("Compare with base model");
  expect(opened).toBe(2);
});

it("no longer waits for a model whose playground was deleted, and loads it again on request", async () => {
  session = { ...ready, state: "loading" };
  render(
    <QueryClientProvider client={queryClient}>
      <Page />
    </QueryClientProvider>,
  );
  await screen.findByText("Loading the weights");
  session = null;
  await act(() => queryClient.invalidateQueries({ queryKey: ["playground"] }));
  expect(await screen.findByText("The playground was deleted.")).toBeDefined();
  session = ready;
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));
  await screen.findByText("Compare with base model");
});

it("shows why a model could not be loaded", async () => {
  session = { ...ready, state: "ended", models: [], job: { ...ready.job, status: "failed", error_message: "Its weights are cut short." } };
  render(
    <QueryClientProvider client={queryClient}>
      <Page />
    </QueryClientProvider>,
  );
  expect(await screen.findByText("Its weights are cut short.")).toBeDefined();
  expect(screen.getByRole("button", { name: "Try again" })).toBeDefined();
});

it("sends nothing while a setting is wrong", async () => {
  const user = await talk();
  const temperature = screen.getByRole("textbox", { name: /Temperature/ });
  await user.clear(temperature);
  await user.type(temperature, "9");
  await user.type(box(), "Hello{Enter}");
  expect(screen.getByText("The value must be at most 2.")).toBeDefined();
  expect(requests).toHaveLength(0);
});

it("keeps the text that is not sent yet when another model is chosen", async () => {
  const user = await talk();
  await user.type(box(), "Half a question");
  await user.click(screen.getByRole("button", { name: "Choose another" }));
  expect(box().value).toBe("Half a question");
});

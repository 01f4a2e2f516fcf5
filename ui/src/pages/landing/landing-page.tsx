/** The landing page. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ArrowRight } from "lucide-react";
import { authStateQuery } from "@/api/auth";
import { Button, CopyButton } from "@/components/button";
import { Skeleton } from "@/components/loaded";
import { SetupPanel } from "@/pages/auth/auth-frame";
import { Footer } from "@/shell/footer";
import { Brand, usePageTitle } from "@/shell/page";
import { StreamPicture } from "./stream-picture";

export function LandingPage() {
  usePageTitle("GPU Bloom");
  return (
    <div className="min-h-dvh overflow-x-clip bg-[radial-gradient(1100px_620px_at_70%_-8%,color-mix(in_srgb,var(--color-violet)_20%,transparent),transparent_70%),radial-gradient(900px_560px_at_5%_18%,color-mix(in_srgb,var(--color-primary)_38%,transparent),transparent_70%)] bg-rail">
      <div className="mx-auto max-w-[1120px] px-5 sm:px-8">
        <header className="flex items-center justify-between py-5">
          <Brand to="/" />
          <EntryActions position="header" />
        </header>
        <main>
          <section className="pt-10 pb-10 sm:pt-14 lg:pb-9">
            <h1 className="max-w-3xl text-[clamp(34px,6vw,60px)] leading-[1.05] font-[680] tracking-[-0.035em] text-balance text-white">
              Train and <span className="whitespace-nowrap">fine-tune</span> language models on your own or rented GPUs
            </h1>
            <p className="mt-5 max-w-2xl text-[17px] leading-relaxed text-dim text-pretty">
              GPU Bloom is a self-hosted training platform. Upload a dataset, choose a model, start training, and watch the
              loss live in your browser. Then download the model as Hugging Face files. Your data stays on your machine
              unless you rent a GPU.
            </p>
            <div className="mt-8">
              <EntryActions position="hero" />
            </div>
          </section>
          <CardColumns id="steps" title="How it works" items={STEPS} numbered />
          <section aria-labelledby="larger" className="mt-20">
            <h2 id="larger" className="text-[24px] font-[650] tracking-[-0.02em] text-white">
              Models larger than the GPU
            </h2>
            <p className="mt-2 mb-8 max-w-2xl text-[14.5px] leading-relaxed text-dim">
              A model can be larger than the memory of your GPU. Weights and optimizer state stay in host memory (CPU RAM)
              and are streamed through the GPU layer by layer, in full precision. One GPU is enough.
            </p>
            <StreamPicture />
          </section>
          <MemoryArithmetic />
          <CardColumns id="features" title="Features" items={FEATURES} />
          <TerminalSample />
        </main>
        <Footer className="mt-20 py-6" />
      </div>
    </div>
  );
}

/** The way in, which depends on the visitor: somebody signed in, somebody new, or the owner of a fresh server. */
function EntryActions({ position }: { position: "header" | "hero" }) {
  const { data: state, isPending } = useQuery(authStateQuery);
  const size = position === "hero" ? "large" : "normal";
  if (isPending) return <Skeleton className={position === "hero" ? "h-10 w-44 rounded-control" : "h-8.5 w-20 rounded-control"} />;

  if (state?.user) {
    return (
      <Button asChild variant="primary" size={size}>
        <Link to="/dashboard">
          Open dashboard
          <ArrowRight aria-hidden />
        </Link>
      </Button>
    );
  }
  if (state?.setup_required) {
    return position === "hero" ? (
      <div className="max-w-xl">
        <SetupPanel />
      </div>
    ) : null;
  }
  const signUp = position === "hero" && state?.signup === "open";
  return (
    <div className="flex flex-wrap gap-3">
      {signUp && (
        <Button asChild variant="primary" size={size}>
          <Link to="/auth" search={{ tab: "sign-up" }}>
            Create an account
            <ArrowRight aria-hidden />
          </Link>
        </Button>
      )}
      <Button asChild variant={position === "hero" && !signUp ? "primary" : "outline"} size={size}>
        <Link to="/auth">Sign in</Link>
      </Button>
    </div>
  );
}

type CardColumn = { title: string; text: string };

const STEPS: CardColumn[] = [
  {
    title: "Choose a model and data",
    text: "Use a model from Hugging Face or your own model. Upload examples as JSONL, CSV, Parquet or text, and preview what the model will be trained on. Or run your own training script.",
  },
  {
    title: "Check memory, time and cost",
    text: "Before a job starts, a plan shows how much GPU and host memory it needs and how long it will take. Compare your own machine with the prices of cloud providers.",
  },
  {
    title: "Train, test and export",
    text: "Watch loss, throughput and memory live. Chat with the base model and the fine-tuned model side by side. Export Hugging Face files or GGUF.",
  },
];

const FEATURES: CardColumn[] = [
  {
    title: "Full fine-tuning, LoRA and QLoRA",
    text: "Train all weights, or only a small adapter. You can also train a new model from scratch.",
  },
  {
    title: "Recovery from checkpoints",
    text: "If the trainer, the worker or the server stops, the run resumes from its last checkpoint. A run is a folder of plain files.",
  },
  {
    title: "Control during training",
    text: "Pause a job to free the GPU and resume it later from the same step. Change the learning rate or save a checkpoint while the job runs.",
  },
];

type CardColumnsProps = { id: string; title: string; items: readonly CardColumn[]; numbered?: boolean };

function CardColumns({ id, title: heading, items, numbered }: CardColumnsProps) {
  const List = numbered ? "ol" : "ul";
  return (
    <section aria-labelledby={id} className="mt-16">
      <h2 id={id} className="text-[24px] font-[650] tracking-[-0.02em] text-white">
        {heading}
      </h2>
      <List className="mt-5 grid gap-8 md:grid-cols-3">
        {items.map(({ title, text }, index) => (
          <li key={title} className="border-t border-line-strong pt-4">
            {numbered && (
              <span aria-hidden className="text-sm font-[600] text-violet-soft">
                {index + 1}
              </span>
            )}
            <h3 className="mt-1 text-[17px] font-[620] tracking-[-0.01em] text-white">{title}</h3>
            <p className="mt-1.5 text-[14.5px] leading-relaxed text-dim">{text}</p>
          </li>
        ))}
      </List>
    </section>
  );
}

/** BF16 weights and gradients, FP32 master and two FP32 moments: what full precision takes for each parameter. */
const PARTS = [
  { name: "weights, BF16", bytes: 2, className: "bg-violet" },
  { name: "master copy, FP32", bytes: 4, className: "bg-primary" },
  { name: "Adam moments, FP32", bytes: 8, className: "bg-primary-mid" },
  { name: "gradient, BF16", bytes: 2, className: "bg-teal-deep" },
];

const EXAMPLES = [7, 14, 70];
const TOTAL = PARTS.reduce((sum, part) => sum + part.bytes, 0);

function MemoryArithmetic() {
  return (
    <section aria-labelledby="arithmetic" className="mt-20 rounded-2xl border border-line bg-card/70 p-6 sm:p-8">
      <h2 id="arithmetic" className="text-[24px] font-[650] tracking-[-0.02em] text-white">
        Memory requirements
      </h2>
      <p className="mt-2 max-w-2xl text-[14.5px] leading-relaxed text-dim">
        Training all weights in full precision takes {TOTAL} bytes per parameter, split between host memory and GPU memory.
        The size of the host memory limits the size of the model. The GPU and its connection to host memory limit the
        training speed.
      </p>
      <div aria-hidden className="mt-6 flex h-9 gap-1 overflow-hidden rounded-lg">
        {PARTS.map(({ name, bytes, className }) => (
          <div
            key={name}
            style={{ flexGrow: bytes }}
            className={`grid basis-0 place-items-center text-sm font-[600] text-white ${className}`}
          >
            {bytes}
          </div>
        ))}
      </div>
      <ul className="mt-3 flex flex-wrap gap-x-6 gap-y-1.5 text-sm text-dim">
        {PARTS.map(({ name, bytes, className }) => (
          <li key={name} className="flex items-center gap-2">
            <span aria-hidden className={`h-1.5 w-3.5 rounded-full ${className}`} />
            {name}: {bytes} bytes
          </li>
        ))}
      </ul>
      <dl className="mt-7 grid gap-px overflow-hidden rounded-card border border-line sm:grid-cols-3">
        {EXAMPLES.map((billions) => (
          <div key={billions} className="bg-white/3 px-4 py-3">
            <dt className="text-xs text-dim">{billions} billion parameters</dt>
            <dd className="text-[19px] font-[620] tracking-[-0.02em]">
              {(billions * TOTAL).toLocaleString("en-GB")} GB
              <small className="ml-2 text-xs font-[450] tracking-normal text-dim">plus activations</small>
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

/** A command to type into a terminal. */
function CommandLine({ command }: { command: string }) {
  return (
    <div className="flex items-center gap-3 rounded-control border border-line bg-rail py-1.5 pr-1.5 pl-3 text-left">
      <code className="min-w-0 flex-1 font-mono text-xs wrap-anywhere text-code">
        <span aria-hidden className="text-teal-soft select-none">
          ${" "}
        </span>
        {command}
      </code>
      <CopyButton text={command} label={`Copy the command ${command}`} />
    </div>
  );
}

/** The command that every page names when it says how to train; the same as in docs/training.md. */
const TRAIN_COMMAND = "bloom train --train-path my-text.txt";

function TerminalSample() {
  return (
    <section aria-labelledby="terminal" className="mt-20 grid grid-cols-[minmax(0,1fr)] items-center gap-x-12 gap-y-6 md:grid-cols-2">
      <div>
        <h2 id="terminal" className="text-[24px] font-[650] tracking-[-0.02em] text-white">
          Command line or web app
        </h2>
        <p className="mt-2 text-[14.5px] leading-relaxed text-dim">
          <code className="font-mono text-[0.92em]">bloom train</code> trains a model on the machine where you run the command.{" "}
          <code className="font-mono text-[0.92em]">bloom up</code> starts this web app with projects, a job queue and user accounts. You
          do not need a cloud account.
        </p>
      </div>
      <div className="grid min-w-0 grid-cols-[minmax(0,1fr)] gap-2.5">
        <CommandLine command={TRAIN_COMMAND} />
        <CommandLine command="bloom up" />
      </div>
    </section>
  );
}

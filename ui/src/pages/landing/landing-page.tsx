import { Brand } from "@/shell/brand";
import { usePageTitle } from "@/shell/use-page-title";
import { EntryActions } from "./entry-actions";
import { HowItWorks } from "./how-it-works";
import { MemoryArithmetic } from "./memory-arithmetic";
import { StreamPicture } from "./stream-picture";
import { TerminalSample } from "./terminal-sample";

export function LandingPage() {
  usePageTitle("GPU Bloom");
  return (
    <div className="min-h-dvh overflow-x-clip bg-[radial-gradient(1100px_620px_at_70%_-8%,rgb(124_58_237/0.2),transparent_70%),radial-gradient(900px_560px_at_5%_18%,rgb(30_58_138/0.38),transparent_70%)] bg-rail">
      <div className="mx-auto max-w-[1120px] px-5 sm:px-8">
        <header className="flex items-center justify-between py-5">
          <Brand to="/" />
          <EntryActions position="header" />
        </header>
        <main>
          <section className="pt-10 pb-10 sm:pt-14 lg:pb-9">
            <h1 className="max-w-3xl text-[clamp(34px,6vw,60px)] leading-[1.05] font-[680] tracking-[-0.035em] text-balance text-white">
              Train language models. See every step.
            </h1>
            <p className="mt-5 max-w-2xl text-[17px] leading-relaxed text-[#b9c1cd] text-pretty">
              Start a run from the browser or the command line, watch it live, pause it, steer it, and download plain Hugging
              Face files. It runs on your own machine, and nothing leaves it.
            </p>
            <div className="mt-8">
              <EntryActions position="hero" />
            </div>
          </section>
          <HowItWorks />
          <TerminalSample />
          <section aria-labelledby="larger" className="mt-20">
            <h2 id="larger" className="text-[24px] font-[650] tracking-[-0.02em] text-white">
              Models larger than the GPU
            </h2>
            <p className="mt-2 mb-8 max-w-2xl text-[14.5px] leading-relaxed text-[#b3bbc8]">
              What does not fit on the GPU stays in host memory: weights and optimizer state pass through the GPU layer by
              layer, at full precision, so that one GPU is enough.
            </p>
            <StreamPicture />
          </section>
          <MemoryArithmetic />
        </main>
        <footer className="mt-20 flex flex-wrap justify-between gap-x-6 gap-y-2 border-t border-line py-6 text-sm text-dim">
          <span>GPU Bloom is free software under the Apache License 2.0.</span>
          <span>This page loads nothing from anywhere else.</span>
        </footer>
      </div>
    </div>
  );
}

import { CommandLine } from "@/components/command-line";
import { TRAIN_COMMAND } from "@/text/commands";

export function TerminalSample() {
  return (
    <section aria-labelledby="terminal" className="mt-20 grid grid-cols-[minmax(0,1fr)] items-center gap-x-12 gap-y-6 md:grid-cols-2">
      <div>
        <h2 id="terminal" className="text-[24px] font-[650] tracking-[-0.02em] text-white">
          One package, two commands
        </h2>
        <p className="mt-2 text-[14.5px] leading-relaxed text-[#b3bbc8]">
          The first trains on the machine you type it on. The second serves this web app, where projects and the people who
          work on them are kept. Neither needs a cloud account.
        </p>
      </div>
      <div className="grid min-w-0 grid-cols-[minmax(0,1fr)] gap-2.5">
        <CommandLine command={TRAIN_COMMAND} />
        <CommandLine command="bloom up" />
      </div>
    </section>
  );
}

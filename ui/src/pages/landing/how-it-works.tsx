const STEPS = [
  {
    title: "Memory holds the model",
    text: "Weights, their FP32 master copies and the optimizer's moments lie in host memory, where a gigabyte costs far less than on a GPU.",
  },
  {
    title: "The GPU does the arithmetic",
    text: "The next layer arrives while the current one computes. What fits on the GPU simply stays there, so a small model runs at full speed.",
  },
  {
    title: "Nothing is rounded away",
    text: "Gradients travel back and update the FP32 masters. Streaming changes where numbers live, never the mathematics.",
  },
];

export function HowItWorks() {
  return (
    <section aria-labelledby="how" className="mt-16">
      <h2 id="how" className="sr-only">
        How it works
      </h2>
      <ol className="grid gap-8 md:grid-cols-3">
        {STEPS.map(({ title, text }, index) => (
          <li key={title} className="border-t border-line-strong pt-4">
            <span aria-hidden className="text-sm font-[600] text-violet-soft">
              {index + 1}
            </span>
            <h3 className="mt-1 text-[17px] font-[620] tracking-[-0.01em] text-white">{title}</h3>
            <p className="mt-1.5 text-[14.5px] leading-relaxed text-[#b3bbc8]">{text}</p>
          </li>
        ))}
      </ol>
    </section>
  );
}

const STEPS = [
  {
    title: "Nothing is lost",
    text: "A run is a folder of plain files. Whatever dies, trainer, worker or server, it goes on from its last checkpoint, and every step keeps its value.",
  },
  {
    title: "You stay in charge",
    text: "Pause frees the device and resume continues exactly there. Learning rate, intervals and checkpoints can change while it trains.",
  },
  {
    title: "Know before you start",
    text: "A plan says whether a model fits, how much memory of which kind it takes and how long it may run. What does not fit is refused with what would.",
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

/** BF16 weights and gradients, FP32 master and two FP32 moments: what full precision takes for each parameter. */
const PARTS = [
  { name: "weights, BF16", bytes: 2, className: "bg-[#6d5bd0]" },
  { name: "master copy, FP32", bytes: 4, className: "bg-[#3f5fb8]" },
  { name: "Adam moments, FP32", bytes: 8, className: "bg-[#31498f]" },
  { name: "gradient, BF16", bytes: 2, className: "bg-[#12707c]" },
];

const EXAMPLES = [7, 14, 70];
const TOTAL = PARTS.reduce((sum, part) => sum + part.bytes, 0);

export function MemoryArithmetic() {
  return (
    <section aria-labelledby="arithmetic" className="mt-20 rounded-2xl border border-line bg-card/70 p-6 sm:p-8">
      <h2 id="arithmetic" className="text-[24px] font-[650] tracking-[-0.02em] text-white">
        What that asks of your machine
      </h2>
      <p className="mt-2 max-w-2xl text-[14.5px] leading-relaxed text-[#b3bbc8]">
        Memory, and plenty of it. Training every weight at full precision takes {TOTAL} bytes for each parameter, spread over
        host and GPU. Host memory decides how large the model can be; the GPU, and its link to that memory, decide how fast
        it trains.
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
              <small className="ml-2 text-xs font-[450] tracking-normal text-dim">and room for activations</small>
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

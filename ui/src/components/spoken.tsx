/** A sentence of the server: what stands between backticks is to be typed. */
export function Spoken({ text }: { text: string }) {
  return text.split("`").map((part, place) =>
    place % 2 === 0 ? (
      part
    ) : (
      // The parts of one sentence never change their order.
      <code key={place} className="font-mono text-[0.92em] break-all text-text">
        {part}
      </code>
    ),
  );
}

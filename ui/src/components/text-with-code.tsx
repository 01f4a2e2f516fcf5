/** A sentence of the server: what stands between backticks is to be typed. */
export function TextWithCode({ text }: { text: string }) {
  return text.split("`").map((part, index) =>
    index % 2 === 0 ? (
      part
    ) : (
      // The parts of one sentence never change their order.
      <code key={index} className="font-mono text-[0.92em] break-all text-text">
        {part}
      </code>
    ),
  );
}

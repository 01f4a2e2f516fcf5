/** Where two texts differ, word by word. */

export type DiffPiece = { text: string; kind: "same" | "removed" | "added" };

// The table of lengths grows with the product; two long answers are compared as wholes.
const MOST_CELLS = 400_000;

const wordsOf = (text: string) => text.match(/\s+|[^\s]+/g) ?? [];

/** One text in pieces: `removed` is only in the first, `added` only in the second. */
export function wordDiff(before: string, after: string): DiffPiece[] {
  const a = wordsOf(before);
  const b = wordsOf(after);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  return joined([
    ...a.slice(0, start).map((text): DiffPiece => ({ text, kind: "same" })),
    ...between(a.slice(start, a.length - end), b.slice(start, b.length - end)),
    ...a.slice(a.length - end).map((text): DiffPiece => ({ text, kind: "same" })),
  ]);
}

function between(a: string[], b: string[]): DiffPiece[] {
  if (a.length * b.length > MOST_CELLS) {
    return [...a.map((text): DiffPiece => ({ text, kind: "removed" })), ...b.map((text): DiffPiece => ({ text, kind: "added" }))];
  }
  const width = b.length + 1;
  const lengths = new Uint32Array((a.length + 1) * width);
  const at = (i: number, j: number) => lengths[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      lengths[i * width + j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const pieces: DiffPiece[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    const [left, right] = [a[i], b[j]];
    if (left !== undefined && left === right) {
      pieces.push({ text: left, kind: "same" });
      i += 1;
      j += 1;
    } else if (left !== undefined && (right === undefined || at(i + 1, j) >= at(i, j + 1))) {
      pieces.push({ text: left, kind: "removed" });
      i += 1;
    } else if (right !== undefined) {
      pieces.push({ text: right, kind: "added" });
      j += 1;
    }
  }
  return pieces;
}

function joined(pieces: DiffPiece[]): DiffPiece[] {
  const merged: DiffPiece[] = [];
  for (const piece of pieces) {
    const last = merged.at(-1);
    if (last?.kind === piece.kind) last.text += piece.text;
    else merged.push({ ...piece });
  }
  return merged;
}

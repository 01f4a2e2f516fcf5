/** Space that can be seen: dots for blanks, arrows for tabs and line ends. The line ends themselves stay. */
export const visibleSpace = (text: string) => text.replaceAll(" ", "·").replaceAll("\t", "→\t").replaceAll("\r", "␍").replaceAll("\n", "↵\n").replaceAll("\u00a0", "⍽");

export type Excerpt<Piece> = { pieces: Piece[]; left: number };

/** The beginning of a text in pieces, so that a row of megabytes does not stop the page. */
export function beginning<Piece extends { text: string }>(pieces: readonly Piece[], most: number): Excerpt<Piece> {
  const excerpt: Piece[] = [];
  let remaining = most;
  let left = 0;
  for (const piece of pieces) {
    if (remaining > 0) excerpt.push(piece.text.length > remaining ? { ...piece, text: piece.text.slice(0, remaining) } : piece);
    left += Math.max(0, piece.text.length - Math.max(0, remaining));
    remaining -= piece.text.length;
  }
  return { pieces: excerpt, left };
}

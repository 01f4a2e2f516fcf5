/** Groups log lines for reading: plain lines, errors, and tracebacks collapsed behind their last line. Used by the job page and the card. */

export type LogPiece = { kind: "line"; text: string; wrong: boolean; warning?: boolean } | { kind: "traceback"; title: string; lines: string[] };

const START = /^Traceback \(most recent call last\):/;
// "ValueError: …", "torch.OutOfMemoryError: …", "KeyboardInterrupt"
const END = /^[A-Za-z_][\w.]*(?::|$)/;
// As the trainer marks the warnings of its log.
const WARNING = /^warning: /;
const WRONG = /\b(error|exception|failed|fatal|killed)\b/i;

export function groupLines(lines: readonly string[]): LogPiece[] {
  const pieces: LogPiece[] = [];
  let open: string[] | null = null;
  for (const text of lines) {
    if (START.test(text)) {
      if (open) pieces.push(tracebackPiece(open));
      open = [text];
    } else if (open) {
      open.push(text);
      // Everything inside is indented or empty; the first line that is neither names the exception.
      if (END.test(text)) {
        pieces.push(tracebackPiece(open));
        open = null;
      }
    } else {
      const warning = WARNING.test(text);
      pieces.push({ kind: "line", text, wrong: !warning && WRONG.test(text), ...(warning && { warning }) });
    }
  }
  if (open) pieces.push(tracebackPiece(open));
  return pieces;
}

function tracebackPiece(lines: string[]): LogPiece {
  const last = lines.at(-1) ?? "";
  return { kind: "traceback", title: END.test(last) && lines.length > 1 ? last : "Traceback", lines };
}

export const countWrong = (pieces: readonly LogPiece[]) => pieces.filter((piece) => piece.kind === "traceback" || piece.wrong).length;

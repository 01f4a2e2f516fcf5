/** Python in colours: enough to read by, nothing that a parser would be needed for. */

export type Kind = "plain" | "comment" | "text" | "keyword" | "number" | "name";
export type Piece = { kind: Kind; text: string };

const COMMENT = String.raw`#[^\n]*`;
const TEXT = String.raw`\b[rbfuRBFU]{0,2}(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)|"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?`;
const KEYWORD = String.raw`\b(?:and|as|assert|async|await|break|case|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|match|nonlocal|not|or|pass|raise|return|try|while|with|yield|None|True|False)\b`;
const NUMBER = String.raw`\b\d[\d_]*\.?\d*(?:[eE][+-]?\d+)?\b`;
const NAME = String.raw`(?<=\b(?:def|class)\s+)\w+`;

const KINDS = ["comment", "text", "name", "keyword", "number"] as const;
const PATTERN = new RegExp([COMMENT, TEXT, NAME, KEYWORD, NUMBER].map((part) => `(${part})`).join("|"), "g");

export function pythonPieces(source: string): Piece[] {
  const pieces: Piece[] = [];
  let end = 0;
  for (const match of source.matchAll(PATTERN)) {
    if (match.index > end) pieces.push({ kind: "plain", text: source.slice(end, match.index) });
    const group = match.slice(1).findIndex((part) => part !== undefined);
    pieces.push({ kind: KINDS[group] ?? "plain", text: match[0] });
    end = match.index + match[0].length;
  }
  if (end < source.length) pieces.push({ kind: "plain", text: source.slice(end) });
  return pieces;
}

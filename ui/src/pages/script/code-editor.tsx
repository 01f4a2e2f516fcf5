/** The code editor, with Python coloured by regular expressions. */
import { type KeyboardEvent, useEffect, useMemo, useRef } from "react";
import { cn } from "@/components/class-names";

type Kind = "plain" | "comment" | "text" | "keyword" | "number" | "name";
type Piece = { kind: Kind; text: string };

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

/** A line to show, and a count: asking for the same line twice shows it twice. */
export type Jump = { line: number; count: number };

type CodeEditorProps = {
  label: string;
  text: string;
  onChange: (text: string) => void;
  coloured: boolean;
  /** Lines that something was found on. */
  marked: ReadonlySet<number>;
  jump: Jump | null;
  describedBy?: string;
  invalid?: boolean;
};

const COLOURS: Record<Kind, string | undefined> = {
  plain: undefined,
  comment: "text-[#8f9bab] italic",
  text: "text-[#8fdcb9]",
  keyword: "text-violet-soft",
  number: "text-[#f0c674]",
  name: "text-[#8ab4ff]",
};
/** Longer files stay in one colour, so that typing in them stays quick. */
const MOST_COLOURED = 40_000;
const LINE = 20;
// All layers have to break and measure their lines alike.
const LAYER = "font-mono text-xs leading-5 whitespace-pre max-sm:text-[16px] [tab-size:4]";

/** Code with line numbers. The text is an ordinary text area: every keyboard, reader and phone knows what to do with it. */
export function CodeEditor({ label, text, onChange, coloured, marked, jump, describedBy, invalid }: CodeEditorProps) {
  const area = useRef<HTMLTextAreaElement>(null);
  const behind = useRef<HTMLDivElement>(null);
  const gutter = useRef<HTMLDivElement>(null);
  const lines = useMemo(() => text.split("\n").length, [text]);
  const pieces = useMemo(() => (coloured && text.length <= MOST_COLOURED ? pythonPieces(text) : null), [coloured, text]);

  useEffect(() => {
    if (jump && area.current) showLine(area.current, jump.line);
  }, [jump]);

  function follow() {
    const { scrollTop = 0, scrollLeft = 0 } = area.current ?? {};
    if (gutter.current) gutter.current.style.transform = `translateY(${-scrollTop}px)`;
    if (behind.current) behind.current.style.transform = `translate(${-scrollLeft}px, ${-scrollTop}px)`;
  }

  return (
    <div
      className={cn(
        "flex h-96 overflow-hidden rounded-control border border-line-strong bg-rail transition-[border-color,box-shadow] duration-150 focus-within:border-violet-bright focus-within:ring-3 focus-within:ring-violet/35 lg:h-[30rem]",
        invalid && "border-danger-soft",
      )}
    >
      <div aria-hidden className="overflow-hidden border-r border-line py-2 select-none">
        <div ref={gutter} className={cn(LAYER, "min-w-10 px-2 text-right text-faint")}>
          {Array.from({ length: lines }, (_, line) => (
            <div key={line} className={marked.has(line + 1) ? "text-teal-soft" : undefined}>
              {line + 1}
            </div>
          ))}
        </div>
      </div>
      <div className="relative min-w-0 flex-1 overflow-hidden">
        {pieces && (
          <div aria-hidden className="pointer-events-none absolute inset-0 overflow-hidden px-2.5 py-2">
            <div ref={behind} className={cn(LAYER, "w-max")}>
              {pieces.map((piece, index) => (
                // Pieces have no name of their own.
                // oxlint-disable-next-line react/no-array-index-key
                <span key={index} className={COLOURS[piece.kind]}>
                  {piece.text}
                </span>
              ))}
            </div>
          </div>
        )}
        <textarea
          ref={area}
          aria-label={label}
          aria-describedby={describedBy}
          aria-invalid={invalid || undefined}
          value={text}
          wrap="off"
          spellCheck={false}
          autoComplete="off"
          autoCapitalize="off"
          onScroll={follow}
          onKeyDown={(event) => keepIndent(event, onChange)}
          onChange={(event) => onChange(event.target.value)}
          // The coloured text is drawn behind.
          className={cn(LAYER, "absolute inset-0 size-full resize-none bg-transparent px-2.5 py-2 caret-text outline-none", pieces && "[-webkit-text-fill-color:transparent]")}
        />
      </div>
    </div>
  );
}

function showLine(area: HTMLTextAreaElement, line: number) {
  const before = area.value.split("\n").slice(0, line - 1);
  const start = before.reduce((sum, each) => sum + each.length + 1, 0);
  const end = area.value.indexOf("\n", start);
  area.focus();
  area.setSelectionRange(start, end < 0 ? area.value.length : end);
  area.scrollTop = Math.max(0, (line - 5) * LINE);
  area.scrollLeft = 0;
}

/** A new line begins where the last one did, and further in after a colon. Tab leaves the field, as in every form. */
function keepIndent(event: KeyboardEvent<HTMLTextAreaElement>, onChange: (text: string) => void) {
  if (event.key !== "Enter" || event.nativeEvent.isComposing || event.ctrlKey || event.metaKey) return;
  const area = event.currentTarget;
  const { selectionStart, value } = area;
  const line = value.slice(value.lastIndexOf("\n", selectionStart - 1) + 1, selectionStart);
  const indent = `${/^[ \t]*/.exec(line)?.[0] ?? ""}${line.trimEnd().endsWith(":") ? "    " : ""}`;
  if (indent === "") return;
  event.preventDefault();
  area.setRangeText(`\n${indent}`, selectionStart, area.selectionEnd, "end");
  onChange(area.value);
}

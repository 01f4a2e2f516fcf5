/**
 * The code editor: CodeMirror with Python, line numbers and search, in the app's colours.
 * It is a controlled field: `text` comes in, `onChange` reports what was typed. CodeMirror is large, so the files card
 * loads this module when the first file is opened.
 */
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { pythonLanguage } from "@codemirror/lang-python";
import { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { search, searchKeymap } from "@codemirror/search";
import { Annotation, Compartment, EditorState, type Extension, RangeSet } from "@codemirror/state";
import { EditorView, GutterMarker, gutterLineClass, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useId, useMemo, useRef, useState } from "react";

/** A line to show, and a count: asking for the same line twice shows it twice. */
export type Jump = { line: number; count: number };

type CodeEditorProps = {
  label: string;
  text: string;
  onChange: (text: string) => void;
  language: "python" | null;
  /** Lines that something was found on. */
  marked: ReadonlySet<number>;
  jump: Jump | null;
  describedBy?: string;
};

const colours = HighlightStyle.define([
  { tag: tags.comment, color: "var(--color-faint)", fontStyle: "italic" },
  { tag: tags.string, color: "var(--color-success-soft)" },
  { tag: [tags.keyword, tags.bool, tags.null], color: "var(--color-violet-soft)" },
  { tag: tags.number, color: "var(--color-warning)" },
  { tag: [tags.definition(tags.function(tags.variableName)), tags.definition(tags.className)], color: "var(--color-primary-soft)" },
]);

const theme = EditorView.theme(
  {
    "&": { height: "100%" },
    // The frame around the editor shows the focus.
    "&.cm-focused": { outline: "none" },
    ".cm-scroller": { fontFamily: "var(--font-mono)", lineHeight: "20px" },
    ".cm-content": { padding: "8px 0", caretColor: "var(--color-text)" },
    ".cm-line": { padding: "0 10px" },
    ".cm-gutters": { backgroundColor: "var(--color-rail)", color: "var(--color-faint)", borderRight: "1px solid var(--color-line)" },
    ".cm-lineNumbers .cm-gutterElement": { minWidth: "40px", padding: "0 8px" },
    ".cm-gutterElement.cm-marked": { color: "var(--color-teal-soft)" },
    "&.cm-focused .cm-matchingBracket": { backgroundColor: "color-mix(in srgb, var(--color-violet) 45%, transparent)" },
    "&.cm-focused .cm-nonmatchingBracket": { backgroundColor: "color-mix(in srgb, var(--color-danger) 45%, transparent)" },
    ".cm-searchMatch": { backgroundColor: "color-mix(in srgb, var(--color-teal) 45%, transparent)" },
    ".cm-searchMatch.cm-searchMatch-selected": { backgroundColor: "color-mix(in srgb, var(--color-violet) 70%, transparent)" },
    ".cm-panels": { backgroundColor: "var(--color-card)", color: "var(--color-text)", fontFamily: "var(--font-sans)" },
    ".cm-panels.cm-panels-top": { borderBottom: "1px solid var(--color-line)" },
    ".cm-panel.cm-search": { padding: "8px 28px 8px 10px" },
    ".cm-panel.cm-search label": { fontSize: "12px" },
    ".cm-textfield": { border: "1px solid var(--color-line-strong)", borderRadius: "6px", backgroundColor: "var(--color-rail)", fontSize: "12px" },
    ".cm-button": { border: "1px solid var(--color-line-strong)", borderRadius: "6px", backgroundImage: "none", fontSize: "12px" },
    ".cm-panel.cm-search [name=close]": { top: "6px", right: "8px", width: "20px", height: "20px", color: "var(--color-dim)" },
  },
  { dark: true },
);

const KEYS = keymap.of([...searchKeymap, ...historyKeymap, ...defaultKeymap, indentWithTab]);

const basics: Extension = [
  lineNumbers(),
  history(),
  bracketMatching(),
  indentOnInput(),
  indentUnit.of("    "),
  EditorState.tabSize.of(4),
  syntaxHighlighting(colours),
  search({ top: true }),
  KEYS,
  theme,
];

/** A change that came from the page: it is not reported back to it. */
const fromPage = Annotation.define<true>();

const mark = new (class extends GutterMarker {
  override elementClass = "cm-marked";
})();

/** Line numbers beyond the end belong to an earlier text. */
const markLines = (numbers: readonly number[]) =>
  gutterLineClass.compute(["doc"], ({ doc }) => RangeSet.of(numbers.filter((number) => number <= doc.lines).map((number) => mark.range(doc.line(number).from))));

export function CodeEditor({ label, text, onChange, language, marked, jump, describedBy }: CodeEditorProps) {
  const container = useRef<HTMLDivElement>(null);
  const editor = useRef<EditorView | null>(null);
  const current = useRef({ text, onChange });
  const [changeable] = useState(() => new Compartment());
  const hintId = useId();
  // The set is a new one whenever the page is drawn; a text can be compared.
  const markedText = [...marked].toSorted((a, b) => a - b).join(",");
  const properties = useMemo(
    () => [
      EditorView.contentAttributes.of({ tabindex: "0", "aria-label": label, "aria-describedby": describedBy ? `${hintId} ${describedBy}` : hintId }),
      markLines(markedText.split(",").filter(Boolean).map(Number)),
      language === "python" ? pythonLanguage : [],
    ],
    [label, describedBy, hintId, markedText, language],
  );

  useEffect(() => {
    const parent = container.current;
    if (parent === null) return;
    const report = EditorView.updateListener.of(({ docChanged, transactions, state }) => {
      if (!docChanged || transactions.some((transaction) => transaction.annotation(fromPage))) return;
      current.current.text = state.doc.toString();
      current.current.onChange(current.current.text);
    });
    const view = new EditorView({ parent, doc: current.current.text, extensions: [basics, changeable.of([]), report] });
    editor.current = view;
    return () => {
      editor.current = null;
      view.destroy();
    };
  }, [changeable]);

  useEffect(() => {
    editor.current?.dispatch({ effects: changeable.reconfigure(properties) });
  }, [changeable, properties]);

  useEffect(() => {
    current.current.onChange = onChange;
    if (text === current.current.text) return;
    current.current.text = text;
    const view = editor.current;
    view?.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text }, annotations: fromPage.of(true) });
  }, [text, onChange]);

  useEffect(() => {
    if (jump && editor.current) showLine(editor.current, jump.line);
  }, [jump]);

  return (
    <>
      <div
        ref={container}
        className="isolate h-96 overflow-hidden rounded-control border border-line-strong bg-rail text-xs transition-[border-color,box-shadow] duration-150 focus-within:border-violet-bright focus-within:ring-3 focus-within:ring-violet/35 max-sm:text-[16px] lg:h-[30rem]"
      />
      <p id={hintId} className="mt-1.5 text-xs text-faint">
        Tab indents the line. To leave the editor with the keyboard, press Escape, then Tab.
      </p>
    </>
  );
}

function showLine(view: EditorView, number: number) {
  const { from, to } = view.state.doc.line(Math.min(number, view.state.doc.lines));
  view.dispatch({ selection: { anchor: from, head: to }, effects: EditorView.scrollIntoView(from, { y: "center" }) });
  view.focus();
}

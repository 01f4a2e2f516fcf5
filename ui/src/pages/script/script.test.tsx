// @vitest-environment jsdom
import { forceParsing } from "@codemirror/language";
import { EditorView } from "@codemirror/view";
import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { useState } from "react";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Requirements } from "@/api/scripts";
import { testJob } from "@/test-job";
import { CodeEditor, type Jump } from "./code-editor";
import { markedLines, needRows, withOverrides } from "./needs-card";
import { commandText, commandWords, EMPTY, fromJob, fromTemplate, jobBody, mistakesIn, scriptRequest, withFiles, withoutFile, withText } from "./script-draft";
import { entryOf, fileFrom, isIncluded, readFile, withoutTop } from "./script-files";

const file = (path: string, text = "x = 1") => ({ path, text });
const template = { name: "t", title: "T", provider: "local", description: "", files: [file("train.py"), file("model.py")], arguments: ["--name=a b"], datasets: ["shakespeare"], gpu: null };

const read = (content: BlobPart) => readFile({ path: "f", file: new File([content], "f") });

describe("files from a disk", () => {
  it("lose the name of the folder that was chosen, and leave caches and hidden files behind", () => {
    const incoming = ["nanoGPT/train.py", "nanoGPT/data/input.txt"].map((path) => ({ path, file: new File([], path) }));
    expect(withoutTop(incoming).map(({ path }) => path)).toEqual(["train.py", "data/input.txt"]);
    expect(withoutTop([{ path: "train.py", file: new File([], "train.py") }])[0]?.path).toBe("train.py");
    expect(["a/.git/config", "__pycache__/x.pyc", ".env", "model.pyc"].filter(isIncluded)).toEqual([]);
    expect(isIncluded("config/train.py")).toBe(true);
  });

  it("are texts, or bytes where they are none", async () => {
    expect(await read("Grüße")).toEqual({ path: "f", text: "Grüße" });
    expect(await read(new Uint8Array([0x89, 0x50, 0, 1]))).toMatchObject({ bytes: new Uint8Array([0x89, 0x50, 0, 1]) });
  });

  it("begin with the script that people usually begin with", () => {
    expect(entryOf([file("a.py"), file("train.py")])).toBe("train.py");
    expect(entryOf([file("a.py"), file("b.py", 'if __name__ == "__main__":')])).toBe("b.py");
    expect(entryOf([file("data.txt")])).toBeNull();
  });
});

describe("a command line", () => {
  it.each([
    ["--a=1  -b 'two words'", ["--a=1", "-b", "two words"]],
    ['--x="a \\"b\\"" c\\ d ""', ["--x=a \"b\"", "c d", ""]],
    ["", []],
  ])("%s has its words", (text, words) => {
    expect(commandWords(text)).toEqual({ words, mistake: null });
    expect(commandWords(commandText(words)).words).toEqual(words);
  });

  it("says which quote is open", () => {
    expect(commandWords("--a 'b").mistake).toContain("'");
  });
});

describe("what is put together", () => {
  it("becomes what the server takes", () => {
    const draft = { ...fromTemplate(EMPTY, template), budget: "20", overrides: { gpus: "", memory: "24", hours: "" }, network: true };
    const offer = { provider: "lambda", gpu: "A10", gpus: 1, kind: "on_demand" as const, region: null };
    expect(jobBody(draft, offer)).toEqual({
      files: [file("model.py"), file("train.py")],
      entry: "train.py",
      arguments: ["--name=a b"],
      name: "T",
      project_id: null,
      provider: "lambda",
      offer,
      requirements: { gpu_memory_gb: 24 },
      datasets: ["shakespeare"],
      packages: null,
      budget: 20,
      max_hours: null,
      failover: null,
      failover_by: { order: "cost", providers: [] },
      network: true,
      confirmed: false,
    });
    expect(jobBody({ ...draft, packages: "numpy, torch==2.9" }, null)).toMatchObject({ provider: "local", offer: null, packages: ["numpy", "torch==2.9"] });
  });

  it("sends what is no text as base64", () => {
    const draft = withFiles(EMPTY, [{ path: "weights.bin", bytes: new Uint8Array([1, 2, 255]) }, file("train.py")]);
    expect(jobBody(draft, null).files).toEqual([file("train.py"), { path: "weights.bin", base64: "AQL/" }]);
  });

  it("is as an earlier job was: its files, its arguments, its machine and its limits", () => {
    const task = { kind: "script", entry: "run.py", arguments: ["--name=a b"], packages: ["torch"], datasets: ["shakespeare"], network: false };
    const job = testJob({ kind: "script", name: "Second try", project_id: "p", task, target: "lambda", offer: { provider: "lambda", gpu: "A10" }, budget: 20, max_hours: null });
    const files = [{ path: "run.py", text: "x = 1" }, { path: "train.py", text: "y" }, { path: "w.bin", text: null, base64: "AQL/" }].map(fileFrom);
    const draft = fromJob({ ...EMPTY, budget: "7", files: [file("old.py")] }, job, files);
    expect(jobBody(draft, null)).toMatchObject({ entry: "run.py", arguments: ["--name=a b"], name: "Second try", project_id: "p", datasets: ["shakespeare"], packages: ["torch"], budget: 20, max_hours: null });
    expect(draft.files).toEqual([file("run.py"), file("train.py", "y"), { path: "w.bin", bytes: new Uint8Array([1, 2, 255]) }]);
    expect([draft.active, draft.offer.preferred]).toEqual(["run.py", { provider: "lambda", gpu: "A10" }]);
    // On this machine: what an edited script needs is read again, and a name that was its file's stays so.
    const here = fromJob(EMPTY, testJob({ kind: "script", name: "run.py", project_id: "p", task }), files);
    expect([here.name, here.packages, here.offer.preferred?.provider]).toEqual(["", "", "local"]);
  });

  it("keeps its script when other files come and go", () => {
    const draft = withFiles(fromTemplate(EMPTY, template), [file("other.py")]);
    expect([draft.entry, draft.active]).toEqual(["train.py", "train.py"]);
    const without = withoutFile(draft, "train.py");
    expect([without.entry, without.active]).toEqual(["model.py", "model.py"]);
  });

  it("is read with the programs next to it, and without its data", () => {
    const draft = withFiles(fromTemplate(EMPTY, template), [file("data/input.txt", "To be"), file("requirements.txt", "numpy")]);
    expect(scriptRequest(draft)).toEqual({ script: "x = 1", files: { "model.py": "x = 1", "requirements.txt": "numpy" }, arguments: ["--name=a b"] });
    expect(scriptRequest(EMPTY)).toBeNull();
    expect(scriptRequest(withText(draft, "train.py", "  "))).toBeNull();
  });

  it("says what is missing or impossible", () => {
    expect(mistakesIn(EMPTY).files).toContain("template");
    const wrong = { ...fromTemplate(EMPTY, template), budget: "-1", maxHours: "soon", arguments: "'", overrides: { gpus: "1.5", memory: "", hours: "" } };
    expect(Object.keys(mistakesIn(wrong)).toSorted()).toEqual(["arguments", "budget", "gpus", "maxHours"]);
    expect(mistakesIn(fromTemplate(EMPTY, template))).toEqual({});
  });
});

const detected = <Value,>(value: Value, line: number | null = null, confidence = "stated", from: string | null = null) => ({ value, confidence, reason: null, evidence: line === null ? [] : [{ line, text: "", file: from }] });
const requirements = {
  purpose: detected("train"),
  frameworks: [detected("pytorch", 1)],
  packages: [detected("torch", 1, "derived"), detected("numpy", 2, "assumed")],
  models: [],
  datasets: [],
  trackers: [],
  parallelism: [],
  method: null,
  parameters: detected(124_475_904, 9, "derived", "model.py"),
  batch: detected(12, 4),
  accumulation: detected(1),
  sequence: null,
  dtype: null,
  iterations: null,
  epochs: null,
  gpus: detected(1, null, "assumed"),
  multi_node: detected(false),
  interactive: detected(false),
  gpu_memory_gb: detected(10.5, 4, "derived"),
  duration_hours: detected(3, 6, "derived"),
  stated_duration: null,
  reference_gpu: "A10",
  operations: null,
  checkpoints: detected({ saves_with: "torch.save", folder: "out", resumes_with: null, resume_arguments: [] }, 8),
  writes_tensorboard: detected(false),
  notes: [],
} as unknown as Requirements;

describe("what was found in a script", () => {
  it("is said in rows, each only as sure as its least sure part", () => {
    const rows = Object.fromEntries(needRows(requirements).map(({ name, value, confidence }) => [name, [value, confidence]]));
    expect(rows).toEqual({
      Purpose: ["training", "stated"],
      Parameters: ["124 M", "derived"],
      "Batch size": ["12", "stated"],
      Libraries: ["pytorch", "stated"],
      Packages: ["torch, numpy", "assumed"],
      "Saves checkpoints with": ["torch.save", "stated"],
      "Resumes with": ["cannot resume; restarts from the beginning", "stated"],
    });
  });

  it("marks the lines of the file in sight", () => {
    expect([...markedLines(requirements, "train.py", "train.py")].toSorted()).toEqual([1, 2, 4, 6, 8]);
    expect([...markedLines(requirements, "model.py", "train.py")]).toEqual([9]);
  });

  it("gives way to what a person says", () => {
    const own = withOverrides(requirements, { gpus: "", memory: "24", hours: "x" });
    expect(own.gpu_memory_gb).toMatchObject({ value: 24, confidence: "stated" });
    expect(own.duration_hours).toBe(requirements.duration_hours);
    expect(own.gpus).toBe(requirements.gpus);
  });

});

function Editor({ jump = null, marked = [], first = "a = 1\nfor i in x:" }: { jump?: Jump | null; marked?: number[]; first?: string }) {
  const [text, setText] = useState(first);
  return (
    <>
      <CodeEditor label="Text of train.py" text={text} onChange={setText} language="python" marked={new Set(marked)} jump={jump} />
      <output>{JSON.stringify(text)}</output>
      <button type="button" onClick={() => setText("b = 2")}>
        Take a template
      </button>
    </>
  );
}

const field = () => screen.getByRole("textbox", { name: "Text of train.py" });
const value = () => JSON.parse(screen.getByRole("status").textContent ?? "") as string;

function editor(): EditorView {
  const view = EditorView.findFromDOM(field());
  if (view === null) throw new Error("There is no editor.");
  return view;
}

/** Presses a key. True: the editor left it to the browser. */
const press = (key: string, keyCode: number) => fireEvent.keyDown(field(), { key, code: key, keyCode });

describe("the editor", () => {
  beforeEach(() => {
    // jsdom has no layout; CodeMirror measures lines before it scrolls to one.
    Range.prototype.getClientRects = () => [] as unknown as DOMRectList;
    Range.prototype.getBoundingClientRect = () => ({ top: 0, bottom: 0, left: 0, right: 0, width: 0, height: 0 }) as DOMRect;
  });

  afterEach(cleanup);

  it("reports what is typed, and indents a line after a colon", () => {
    render(<Editor />);
    act(() => editor().dispatch({ selection: { anchor: editor().state.doc.length } }));
    // CodeMirror parses for a few milliseconds at a time; a busy machine needs more of them.
    expect(forceParsing(editor(), editor().state.doc.length, 60_000)).toBe(true);
    expect(press("Enter", 13)).toBe(false);
    act(() => editor().dispatch(editor().state.replaceSelection("f()")));
    expect(value()).toBe("a = 1\nfor i in x:\n    f()");
  });

  it("indents with Tab, and lets Tab leave after Escape", () => {
    render(<Editor />);
    expect(press("Tab", 9)).toBe(false);
    expect(value()).toBe("    a = 1\nfor i in x:");
    press("Escape", 27);
    expect(press("Tab", 9)).toBe(true);
    expect(value()).toBe("    a = 1\nfor i in x:");
    const described = field().getAttribute("aria-describedby") ?? "";
    expect(document.getElementById(described)?.textContent).toContain("press Escape, then Tab");
  });

  it("takes a new text from the page, and keeps what the page has when a file ends its lines in another way", () => {
    render(<Editor first={"a\r\nb"} />);
    expect(editor().state.doc.lines).toBe(2);
    expect(value()).toBe("a\r\nb");
    fireEvent.click(screen.getByRole("button", { name: "Take a template" }));
    expect(editor().state.doc.toString()).toBe("b = 2");
    expect(value()).toBe("b = 2");
  });

  it("marks the numbers of lines that something was found on", () => {
    render(<Editor marked={[2, 9]} />);
    expect([...document.querySelectorAll(".cm-gutterElement.cm-marked")].map(({ textContent }) => textContent)).toEqual(["2"]);
  });

  it("selects a line that is asked for", () => {
    render(<Editor jump={{ line: 2, count: 1 }} />);
    const { from, to } = editor().state.selection.main;
    expect(editor().state.sliceDoc(from, to)).toBe("for i in x:");
    expect(document.activeElement).toBe(field());
  });
});

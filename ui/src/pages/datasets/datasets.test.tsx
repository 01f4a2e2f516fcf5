// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import type { Dataset, DatasetReport } from "@/api/types";
import { serveFrom } from "@/test-server";
import { FormatCard, mappingBody, MappingForm, mappingMistakes, startingMapping, withFormat } from "./format-card";
import { beginning, RowText, visibleSpace } from "./preview-card";
import { LengthsCard } from "./report-cards";

const column = (name: string) => ({ name, filled: 3, missing: 0, types: { text: 3 } });

const report: DatasetReport = {
  kind: ".csv",
  encoding: "utf-8",
  notes: [],
  rows: 3,
  blank_lines: 0,
  columns: [column("frage"), column("antwort"), column("system")],
  paths: [],
  unused_columns: [],
  detection: { mapping: null, confidence: 0.2, reason: "None of the columns has a usual name" },
  mapping: null,
  examples: 0,
  problems: { rows_refused: 0, remarks: 0, kinds: {}, first: [] },
  lengths: null,
  duplicates: null,
};

const dataset = { id: "d1", name: "qa.csv", filename: "qa.csv", format: null, columns: {}, encoding: null } as unknown as Dataset;

afterEach(() => {
  cleanup();
  queryClient.clear();
  vi.unstubAllGlobals();
});

describe("a mapping by hand", () => {
  it("begins with what is in force, then with the guess, then with equal names", () => {
    const mapping = { format: "alpaca" as const, columns: { instruction: "frage", output: "antwort" } };
    expect(startingMapping(dataset, { ...report, mapping }).columns).toMatchObject({ instruction: "frage", output: "antwort", input: "" });
    expect(startingMapping(dataset, { ...report, detection: { ...report.detection, mapping } }).format).toBe("alpaca");
    expect(startingMapping(dataset, report)).toEqual({ format: "prompt_completion", columns: { prompt: "", completion: "", system: "system", label: "" }, encoding: "" });
  });

  it("forgets columns that the file does not have", () => {
    const mapping = { format: "text" as const, columns: { text: "gone" } };
    expect(startingMapping(dataset, { ...report, mapping }).columns).toEqual({ text: "" });
  });

  it("asks for what the format needs, and takes no column twice", () => {
    const values = withFormat(startingMapping(dataset, report), "prompt_completion", report);
    expect(mappingMistakes(values)).toEqual({ prompt: "Choose a column.", completion: "Choose a column." });
    const twice = { ...values, columns: { prompt: "frage", completion: "frage" } };
    expect(mappingMistakes(twice)).toEqual({ completion: "This column is already used for: prompt." });
    expect(mappingMistakes({ ...values, columns: { prompt: "frage", completion: "antwort", system: "" } })).toEqual({});
  });

  it("sends only the fields of the chosen format that have a column", () => {
    const columns = { prompt: "frage", completion: "antwort", system: "", instruction: "left over" };
    expect(mappingBody({ format: "prompt_completion", columns, encoding: "" })).toEqual({
      format: "prompt_completion",
      columns: { prompt: "frage", completion: "antwort" },
      encoding: null,
    });
  });
});

describe("the form for it", () => {
  it("says what is missing with the focus on it, then sends and hands on", async () => {
    const sent = serveFrom(() => ({ body: dataset }));
    const onDone = vi.fn();
    render(
      <QueryClientProvider client={queryClient}>
        <MappingForm dataset={dataset} report={report} onDone={onDone} />
      </QueryClientProvider>,
    );
    const user = userEvent.setup();
    await user.click(screen.getByRole("button", { name: "Apply format" }));
    const prompt = screen.getByRole("combobox", { name: /^Prompt column/ });
    expect(document.activeElement).toBe(prompt);
    expect(prompt.getAttribute("aria-invalid")).toBe("true");
    expect(sent).toHaveLength(0);
    await user.selectOptions(prompt, "frage");
    await user.selectOptions(screen.getByRole("combobox", { name: /^Completion column/ }), "antwort");
    await user.selectOptions(screen.getByRole("combobox", { name: /^System prompt/ }), "None");
    await user.click(screen.getByRole("button", { name: "Apply format" }));
    await vi.waitFor(() => expect(onDone).toHaveBeenCalledOnce());
    expect(sent[0]).toEqual({
      method: "PATCH",
      path: "/api/datasets/d1",
      body: { format: "prompt_completion", columns: { prompt: "frage", completion: "antwort" }, encoding: null },
    });
  });

  it("shows the server's objection and keeps what was chosen", async () => {
    serveFrom(() => ({ status: 422, body: { code: "invalid_input", detail: "There is no column antwort." } }));
    render(
      <QueryClientProvider client={queryClient}>
        <MappingForm dataset={dataset} report={{ ...report, mapping: { format: "text", columns: { text: "antwort" } } }} onDone={() => {}} />
      </QueryClientProvider>,
    );
    await userEvent.setup().click(screen.getByRole("button", { name: "Apply format" }));
    expect((await screen.findByRole("alert")).textContent).toBe("There is no column antwort.");
    expect((screen.getByRole("combobox", { name: /^Text column/ }) as HTMLSelectElement).value).toBe("antwort");
  });
});

it("asks for no columns where no row could be read, only for another encoding", () => {
  const unreadable = { ...report, columns: [], detection: { mapping: null, confidence: 0, reason: "No row could be read." } };
  render(<FormatCard dataset={dataset} report={unreadable} />);
  expect(screen.getByText("No row could be read.")).toBeDefined();
  expect(screen.queryByRole("form", { name: "Column mapping" })).toBeNull();
  expect(screen.getByRole("form", { name: "Encoding" })).toBeDefined();
});

describe("what the model sees", () => {
  it("makes blanks, tabs and line ends visible without losing a line end", () => {
    expect(visibleSpace("a b\tc\r\n d")).toBe("a·b→\tc␍↵\n·d");
  });

  it("is cut where a long row begins to be too much, in the middle of a piece if need be", () => {
    const pieces = [
      { text: "12345", trained: false },
      { text: "67890", trained: true },
      { text: "abc", trained: false },
    ];
    expect(beginning(pieces, 7)).toEqual({ pieces: [pieces[0], { text: "67", trained: true }], left: 6 });
    expect(beginning(pieces, 100)).toEqual({ pieces, left: 0 });
  });

  it("marks what is trained, and shows more of a long row when asked", async () => {
    const { container } = render(
      <RowText
        pieces={[
          { text: "user: hi\n", trained: false },
          { text: "x".repeat(5_000), trained: true },
        ]}
      />,
    );
    expect(container.querySelector("mark")?.textContent).toHaveLength(500 - "user: hi\n".length);
    await userEvent.setup().click(screen.getByRole("button", { name: /Show more, 4,509 characters/ }));
    expect(container.querySelector("mark")?.textContent).toHaveLength(5_000);
  });
});

it("says in words what the histogram of lengths shows", () => {
  render(
    <LengthsCard
      lengths={{ unit: "tokens", total: 1_000, trained: 250, longest: [[7, 40]], median: 16, percentile_95: 32, histogram: [{ begin: 8, end: 16, rows: 5 }, { begin: 16, end: 64, rows: 1 }], too_long: 0, first_too_long: [] }}
    />,
  );
  expect(screen.getByRole("img").getAttribute("aria-label")).toContain("50 % of the examples have at most 16 tokens, 95 % have at most 32, the longest example has 40");
  expect(screen.getByText("250 · 25 %")).toBeDefined();
});

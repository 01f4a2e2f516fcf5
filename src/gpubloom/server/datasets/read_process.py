"""`python -m` this with a request on the input: inspects, shows or converts one file of examples.

Runs what strangers wrote (their files, their chat templates) in a process that is confined to these files,
with bounded memory and time. Answers are lines of JSON: {"progress": 0.5}, {"report": …}, {"page": …} or
{"refused": "a sentence"}. Values of rows are shown as plain JSON of bounded length and depth.
"""

import json
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpubloom.datasets import (
    Detection,
    Mapping,
    ModelFiles,
    Piece,
    Problem,
    RowProblem,
    Source,
    detect,
    inspect,
    preview,
    sample,
    to_example,
)
from gpubloom.datasets.parquet import count_rows
from gpubloom.datasets.problems import NotADataset, TemplateLimit
from gpubloom.sandbox.landlock import Limits, confine_reader, with_links
from gpubloom.server.storage.children import TEMPLATE_CPU_SECONDS
from gpubloom.traincard.number_encoding import encode_number

_KEPT_PROBLEMS = 100_000
# Problems are the most: each has at most 2,000 characters, and a character at most 12 bytes in JSON.
_LARGEST_FILE = _KEPT_PROBLEMS * 25_000
_PAGE_MEMORY_BYTES = 2 << 30
_SHOWN_PROBLEMS = 20
_SHOWN_COLUMNS = 200
_TELL_EVERY_SECONDS = 0.3
_CONVERTED_BUFFER = 1 << 18

_MOST_CHARACTERS = 20_000
_MOST_ITEMS = 200
_LONGEST_NAME = 200
_DEEPEST = 24


def send_line(**fields: Any) -> None:
    """One line of the answer."""
    sys.stdout.write(json.dumps(_clean(fields)) + "\n")
    sys.stdout.flush()


def _clean(value: Any) -> Any:
    match value:
        case str():
            return readable(value)
        case list() | tuple():
            return [_clean(item) for item in value]
        case dict():
            return {readable(str(name)): _clean(item) for name, item in value.items()}
        case _:
            return value


def mapping_for(source: Source, request: dict[str, Any]) -> tuple[Mapping | None, Detection]:
    """How rows are read: as a person said, otherwise as guessed when the guess is sure."""
    found = detect(sample(source))
    if request["columns"]:
        return Mapping(request["format"], request["columns"]), found
    if request["format"] is None:
        return (found.mapping if found.is_sure else None), found
    if found.mapping is not None and found.mapping.format == request["format"]:
        return found.mapping, found
    return _usual_columns(request["format"]), found


def _usual_columns(format_: Any) -> Mapping:
    usual: dict[str, dict[str, str]] = {
        "text": {"text": "text"},
        "prompt_completion": {"prompt": "prompt", "completion": "completion"},
        "alpaca": {"instruction": "instruction", "input": "input", "output": "output"},
        "sharegpt": {"messages": "conversations"},
        "messages": {"messages": "messages"},
        "oasst": {"tree": "prompt"},
    }
    return Mapping(format_, usual[format_])


def _inspect(source: Source, request: dict[str, Any]) -> None:
    mapping, _ = mapping_for(source, request)
    whole = count_rows(source.path) if source.kind == ".parquet" else source.size
    problems = Path(request["problems"])
    # An inspection ends with the worker that wanted it, and one that is killed cannot clean up.
    for left in problems.parent.glob(f".{'[0-9a-f]' * 16}.partial"):
        left.unlink(missing_ok=True)
    partial = problems.with_name(f".{secrets.token_hex(8)}.partial")
    kept, told = 0, 0.0

    def on_progress(behind: int) -> None:
        nonlocal told
        if time.monotonic() - told > _TELL_EVERY_SECONDS:
            told = time.monotonic()
            send_line(progress=min(1.0, behind / max(1, whole)))

    try:
        with partial.open("x", encoding="utf-8") as file:

            def on_problem(problem: Problem) -> None:
                nonlocal kept
                if kept < _KEPT_PROBLEMS:
                    kept += 1
                    file.write(json.dumps(_clean(_problem(problem))) + "\n")

            report = inspect(
                source, mapping=mapping, keep=_SHOWN_PROBLEMS, on_progress=on_progress, on_problem=on_problem
            )
        partial.replace(problems)
    finally:
        partial.unlink(missing_ok=True)
    fields = asdict(report)
    for name in ("name", "size", "train", "eval"):
        del fields[name]
    notes = list(report.notes)
    if len(report.columns) > _SHOWN_COLUMNS:
        notes.append(
            f"The file has {len(report.columns):,} columns. Only the first {_SHOWN_COLUMNS} are shown."
        )
    fields["notes"] = notes
    fields["columns"] = [
        {**asdict(column), "name": column.name[:500]} for column in report.columns[:_SHOWN_COLUMNS]
    ]
    fields["paths"] = [path[:500] for path in report.paths[:_SHOWN_COLUMNS]]
    fields["unused_columns"] = [name[:500] for name in report.unused_columns]
    fields["detection"] = _detection(report.detection)
    fields["problems"] = {
        "rows_refused": report.problems.rows_refused,
        "remarks": report.problems.remarks,
        "kinds": {kind[:500]: count for kind, count in report.problems.kinds.items()},
        "first": [_problem(problem) for problem in report.problems.first],
    }
    send_line(report=fields)


def _detection(found: Detection) -> dict[str, Any]:
    return {
        "mapping": asdict(found.mapping) if found.mapping else None,
        "confidence": found.confidence,
        "reason": found.reason[:2_000],
    }


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "row": problem.row,
        "line": problem.line,
        "reason": problem.reason[:2_000],
        "fatal": problem.fatal,
        "code": problem.code,
    }


def _preview(source: Source, request: dict[str, Any]) -> None:
    mapping: Mapping | None
    reason = None
    if request["mapping"] is not None:
        mapping = Mapping(request["mapping"]["format"], request["mapping"]["columns"])
    else:
        mapping, found = mapping_for(source, request)
        reason = found.reason[:2_000]
    model = _load_model(Path(request["model"])) if request["model"] else None
    notes = [*source.notes, *([model.template.note] if model and model.template.note else [])]
    page = preview(source, mapping=mapping, offset=request["offset"], limit=request["limit"], model=model)
    rows = []
    for row in page.rows:
        shown = Shortened()
        limit = request["context_length"]
        rows.append(
            {
                "number": row.number,
                "line": row.line,
                "raw": shown.value(row.raw),
                "pieces": shown.pieces(row.pieces),
                "source": _source(row.raw) if request["has_sources"] else None,
                "tokens": row.tokens,
                "trained_tokens": row.trained_tokens,
                "too_long": None if row.tokens is None or limit is None else row.tokens > limit,
                "problem": None if row.problem is None else row.problem[:2_000],
                "remarks": [remark[:2_000] for remark in row.remarks],
                "cut": shown.cut,
            }
        )
    send_line(
        page={
            "total": page.total,
            "mapping_reason": reason,
            "notes": notes,
            "items": rows,
        }
    )


def _source(raw: Any) -> dict[str, Any] | None:
    """Where a row of documents comes from, as the server wrote it there."""
    source = raw.get("source") if isinstance(raw, dict) else None
    return Shortened().value(source) if isinstance(source, dict) else None


def _load_model(folder: Path) -> ModelFiles:
    from gpubloom.datasets.template_sandbox import end_process_after

    end_process_after(TEMPLATE_CPU_SECONDS)
    return ModelFiles.load(folder)


def _convert(source: Source, request: dict[str, Any]) -> None:
    mapping = Mapping(request["mapping"]["format"], request["mapping"]["columns"])
    with ExitStack() as stack:
        out = stack.enter_context(open(1, "wb", buffering=_CONVERTED_BUFFER, closefd=False))
        for row in source.rows():
            if row.values is None:
                continue
            try:
                record = to_example(row.values, mapping).record()
            except RowProblem:
                continue
            line = json.dumps(record, ensure_ascii=False, default=str) + "\n"
            out.write(line.encode("utf-8", "replace"))


def _confine(request: dict[str, Any]) -> None:
    """From here on, this process reads the folders of the dataset and the model; an inspection also writes
    what it finds beside the dataset."""
    folder = Path(request["path"]).parent
    inputs = [folder, *(with_links(Path(request["model"])) if request.get("model") else ())]
    is_inspection = request["action"] == "inspect"
    # Hashes of rows go to the disk when they are many.
    tempfile.tempdir = str(folder)
    confine_reader(
        inputs,
        [folder] if is_inspection else [],
        limits=Limits(request["cpu_seconds"], file_bytes=_LARGEST_FILE, nice=True)
        if is_inspection
        else Limits(request["cpu_seconds"], memory_bytes=_PAGE_MEMORY_BYTES),
        policy=request["sandbox"],
    )


_ACTIONS: dict[str, Callable[[Source, dict[str, Any]], None]] = {
    "inspect": _inspect,
    "preview": _preview,
    "convert": _convert,
}


def main() -> None:
    """One request, one answer."""
    request = json.load(sys.stdin)
    path = Path(request["path"])
    _confine(request)
    try:
        source = Source.open(path, encoding=request["encoding"])
        if next(source.rows(), None) is None:
            raise NotADataset("data_empty", f"{path.name} has no rows: there is nothing to train on.")
        _ACTIONS[request["action"]](source, request)
    except ValueError as problem:
        # People know the file by another name, and paths of this machine are nobody's business.
        sentence = str(problem)
        if request.get("model"):
            sentence = sentence.replace(request["model"], "the model")
        sentence = sentence.replace(str(path), request["filename"]).replace(path.name, request["filename"])
        code = problem.code if isinstance(problem, TemplateLimit) else "cannot_be_read"
        send_line(refused=sentence[:2_000], code=code)
    except MemoryError:
        send_line(
            refused=f"The server does not have enough memory to read {request['filename']}. Split the file.",
            code="cannot_be_read",
        )
    except BrokenPipeError:
        # Nobody listens any more.
        sys.stderr.close()


class Shortened:
    """Shortens one row for display; `cut` says whether something was left out."""

    def __init__(self) -> None:
        self._left = _MOST_CHARACTERS
        self.cut = False

    def value(self, value: Any, depth: int = 0) -> Any:
        """A value as plain JSON."""
        match value:
            case None | bool() | int():
                return value if not isinstance(value, int) or abs(value) < 2**63 else str(value)
            case float():
                return encode_number(value)
            case str():
                return self.text(value)
            case bytes():
                return f"<{len(value):,} bytes>"
            case list() | tuple() if depth < _DEEPEST:
                self.cut |= len(value) > _MOST_ITEMS
                return [self.value(item, depth + 1) for item in value[:_MOST_ITEMS] if self._left > 0]
            case dict() if depth < _DEEPEST:
                self.cut |= len(value) > _MOST_ITEMS
                return {
                    readable(str(name)[:_LONGEST_NAME]): self.value(item, depth + 1)
                    for name, item in list(value.items())[:_MOST_ITEMS]
                }
            case list() | tuple() | dict():
                return self.text(json.dumps(value, default=str)[: self._left + 1])
            case _:
                return self.text(str(value))

    def text(self, text: str) -> str:
        """A text, as far as there is room for it."""
        shown = text[: self._left]
        self.cut |= len(shown) < len(text)
        self._left -= len(shown)
        return readable(shown + "…" if len(shown) < len(text) else shown)

    def pieces(self, pieces: Iterable[Piece]) -> list[dict[str, Any]]:
        """What the model sees, as far as there is room for it."""
        self._left = _MOST_CHARACTERS
        shown = []
        for piece in pieces:
            shown.append({"text": self.text(piece.text), "trained": piece.trained})
            if self._left <= 0:
                self.cut = True
                break
        return shown


def readable(text: str) -> str:
    """Without halves of characters, which have no UTF-8 form, and without NUL, which databases refuse."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\N{SYMBOL FOR NULL}")


if __name__ == "__main__":
    main()

"""Notebooks to scripts and back.

A script holds a notebook's cells between lines `# %%`. What is no Python, such as `!pip install` and `%time`,
becomes a comment `# magic: …` and comes back as what it was. A script without such lines is cut into cells
between its statements; coming back it is the same text again.
"""

import ast
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from gpubloom.scripts.requirements import ScriptProblem
from gpubloom.scripts.source import parse

MOST_NOTEBOOK_CHARACTERS = 8 * 1024 * 1024
MAGIC = "# magic: "
_MARKER = "# %%"
_OURS = "bloom"
# A cell may hold such lines itself; they are kept apart from ours the same way.
_OUR_MARKS = (_MARKER, MAGIC, f"pass  {MAGIC}")
# Cell magics whose cell is Python all the same.
_AROUND_PYTHON = ("%%time", "%%capture", "%%timeit", "%%prun")
_MOST_TRIES = 200

CellKind = Literal["code", "markdown", "raw"]


@dataclass(frozen=True)
class Cell:
    """One cell. `added`: put there for the service that the notebook runs at; not part of the script."""

    kind: CellKind
    source: str
    added: bool = False
    blank_lines: int = 0


def is_notebook(text: str) -> bool:
    """Whether a text is a notebook's file."""
    return text.lstrip().startswith("{") and '"cells"' in text


def from_notebook(text: str) -> str:
    """The script of a notebook. ScriptProblem: it is none, or of a version without cells."""
    cells, with_markers = _read(text)
    if not with_markers:
        return "".join(_source(cell) + "\n" * cell.blank_lines for cell in cells)
    parts = []
    for cell in cells:
        head = _MARKER if cell.kind == "code" else f"{_MARKER} [{cell.kind}]"
        body = _source(cell) if cell.kind == "code" else _commented(cell.source)
        parts.append(f"{head}\n{body}\n" if body else f"{head}\n")
    return "\n".join(parts)


def to_notebook(script: str, *, before: Sequence[Cell] = (), after: Sequence[Cell] = ()) -> str:
    """A notebook of a script (nbformat 4.5). `before` and `after` are left out on the way back."""
    lines = script.split("\n")
    with_markers = any(line.startswith(_MARKER) for line in lines)
    own = list(_marked(lines) if with_markers else _cut(script))
    everything = [_added(cell) for cell in before] + own + [_added(cell) for cell in after]
    notebook = {
        "cells": [_cell_json(number, cell) for number, cell in enumerate(everything)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            _OURS: {"markers": with_markers},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _read(text: str) -> tuple[list[Cell], bool]:
    if len(text) > MOST_NOTEBOOK_CHARACTERS:
        raise ScriptProblem(
            "script_too_large",
            f"The notebook has {len(text):,} characters; up to {MOST_NOTEBOOK_CHARACTERS:,} are read. "
            "Clear its outputs and save it again.",
        )
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ScriptProblem("not_json", f"The notebook is not valid JSON: {problem}.") from None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise ScriptProblem(
            "not_a_notebook",
            "The file is no notebook of version 4: it has no cells. Open it in Jupyter and save it again.",
        )
    metadata = notebook.get("metadata")
    ours = metadata.get(_OURS) if isinstance(metadata, dict) else None
    with_markers = not (isinstance(ours, dict) and ours.get("markers") is False)
    found = [_cell(cell, number) for number, cell in enumerate(cells, start=1)]
    return [cell for cell in found if not cell.added], with_markers


def _cell(cell: Any, number: int) -> Cell:
    if not isinstance(cell, dict) or cell.get("cell_type") not in {"code", "markdown", "raw"}:
        raise ScriptProblem("not_a_notebook", f"Cell {number} of the notebook is neither code nor text.")
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(str(part) for part in source)
    metadata = cell.get("metadata")
    ours = metadata.get(_OURS) if isinstance(metadata, dict) else None
    ours = ours if isinstance(ours, dict) else {}
    blank = ours.get("blank_lines", 0)
    return Cell(
        cell["cell_type"],
        str(source).replace("\r\n", "\n"),
        bool(ours.get("added")),
        min(max(blank, 0), 100) if isinstance(blank, int) else 0,
    )


def _cell_json(number: int, cell: Cell) -> dict[str, Any]:
    ours: dict[str, Any] = {}
    if cell.added:
        ours["added"] = True
    if cell.blank_lines:
        ours["blank_lines"] = cell.blank_lines
    content: dict[str, Any] = {
        "cell_type": cell.kind,
        "id": f"cell-{number}",
        "metadata": {_OURS: ours} if ours else {},
        "source": cell.source.splitlines(keepends=True),
    }
    if cell.kind == "code":
        content |= {"execution_count": None, "outputs": []}
    return content


def _added(cell: Cell) -> Cell:
    return Cell(cell.kind, cell.source, added=True)


def _source(cell: Cell) -> str:
    """The Python of a cell: what is none becomes comments."""
    lines = cell.source.split("\n")
    if lines[0].lstrip().startswith("%%"):
        rest = [] if lines[0].lstrip().startswith(_AROUND_PYTHON) else lines[1:]
        kept = lines[1:] if not rest else []
        first = [_as_comment(line) for line in [lines[0], *rest]]
        return "\n".join([*first, *_python_lines(kept)])
    return "\n".join(_python_lines(lines))


def _python_lines(lines: list[str]) -> list[str]:
    lines = [_as_comment(line) if line.lstrip().startswith(_OUR_MARKS) else line for line in lines]
    for _ in range(_MOST_TRIES):
        wrong = _wrong_line("\n".join(lines))
        if wrong is None or not wrong <= len(lines) or not _is_magic(lines[wrong - 1]):
            return lines
        lines[wrong - 1] = _as_comment(lines[wrong - 1])
    return [_as_comment(line) if _is_magic(line) else line for line in lines]


def _wrong_line(text: str) -> int | None:
    try:
        ast.parse(text)
    except SyntaxError as problem:
        return problem.lineno
    except (ValueError, RecursionError, MemoryError):
        return None
    return None


def _is_magic(line: str) -> bool:
    text = line.strip()
    if text.startswith("#") or MAGIC in text:
        return False
    if text.startswith(("!", "%", "?")) or text.endswith("?"):
        return True
    _, assigned, value = text.partition("=")
    return bool(assigned) and value.lstrip().startswith(("!", "%"))


def _as_comment(line: str) -> str:
    text = line.lstrip(" \t")
    indent = line[: len(line) - len(text)]
    # A block must not lose its only statement.
    return f"{indent}pass  {MAGIC}{text}" if indent else f"{MAGIC}{text}"


def _from_comment(line: str) -> str:
    text = line.lstrip(" \t")
    indent = line[: len(line) - len(text)]
    if text.startswith(f"pass  {MAGIC}"):
        return indent + text.removeprefix(f"pass  {MAGIC}")
    return indent + text.removeprefix(MAGIC) if text.startswith(MAGIC) else line


def _commented(text: str) -> str:
    lines = (f"\\{line}" if line.lstrip("\\").startswith("%%") else line for line in text.split("\n"))
    return "\n".join(f"# {line}" if line else "#" for line in lines)


def _uncommented(line: str) -> str:
    text = line.removeprefix("#").removeprefix(" ")
    # A line of text that looks like our marker has a backslash before it.
    return text[1:] if text.startswith("\\") and text.lstrip("\\").startswith("%%") else text


def _marked(lines: list[str]) -> Iterator[Cell]:
    """Cells of a script with markers; what stands before the first is a cell of its own."""
    kind: CellKind | None = None
    found: list[str] = []
    for line in [*lines, _MARKER]:
        if not line.startswith(_MARKER):
            found.append(line)
            continue
        if kind is not None or any(text.strip() for text in found):
            yield _of_lines(kind or "code", found)
        kind, found = "code", []
        if "[markdown]" in line:
            kind = "markdown"
        elif "[raw]" in line:
            kind = "raw"


def _of_lines(kind: CellKind, lines: list[str]) -> Cell:
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    change = _from_comment if kind == "code" else _uncommented
    return Cell(kind, "\n".join(change(line) for line in lines))


def _cut(script: str) -> Iterator[Cell]:
    """Cells between top-level statements: imports together, functions and classes alone, then the rest."""
    source = parse(script)
    numbered = source.lines
    starts = sorted(set(_starts(source.tree, numbered)))
    bounds = [1, *(start for start in starts if start > 1), len(numbered) + 1]
    for first, last in pairwise(bounds):
        text = "\n".join(numbered[first - 1 : last - 1])
        if last <= len(numbered):
            text += "\n"
        body = text.rstrip("\n")
        yield Cell("code", body, blank_lines=len(text) - len(body))


def _starts(tree: ast.Module, lines: Sequence[str]) -> Iterator[int]:
    """Lines at which a cell begins; comments right above a statement belong to it."""
    before, end = None, 0
    for node in tree.body:
        kind = _group(node)
        decorators = getattr(node, "decorator_list", [])
        line = min([node.lineno, *(each.lineno for each in decorators)])
        while line - 1 > end and lines[line - 2].startswith("#"):
            line -= 1
        if (kind != before or kind == "definition") and line > end:
            yield line
        before, end = kind, node.end_lineno or line


def _group(node: ast.stmt) -> str:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return "import"
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return "definition"
    return "code"

"""Notebooks to scripts and back.

A script holds a notebook's cells between lines `# %%`. A line that is not Python, such as `!pip install` or
`%time`, becomes a comment `# magic: …` and is restored on the way back. A script without such lines is cut
into cells between its statements; the way back gives the same text again.

nbformat reads and writes the files. It knows no scripts, so cutting and commenting is written here.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
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
    """Whether a text is the content of a notebook file."""
    return text.lstrip().startswith("{") and '"cells"' in text


def from_notebook(text: str) -> str:
    """The script of a notebook. ScriptProblem: the text is not a notebook of version 4."""
    cells, with_markers = _read(text)
    if not with_markers:
        return "".join(_source(cell) + "\n" * cell.blank_lines for cell in cells)
    parts = []
    for cell in cells:
        head = _MARKER if cell.kind == "code" else f"{_MARKER} [{cell.kind}]"
        body = _source(cell) if cell.kind == "code" else _commented(cell.source)
        parts.append(f"{head}\n{body}\n" if body else f"{head}\n")
    return "\n".join(parts)


def to_notebook(
    script: str,
    *,
    before: Sequence[Cell] = (),
    after: Sequence[Cell] = (),
    metadata: Mapping[str, Any] | None = None,
) -> str:
    """A notebook of a script (nbformat 4.5). `before` and `after` are left out on the way back."""
    import nbformat

    lines = script.split("\n")
    with_markers = any(line.startswith(_MARKER) for line in lines)
    own = list(_marked(lines) if with_markers else _cut(script))
    everything = [_added(cell) for cell in before] + own + [_added(cell) for cell in after]
    notebook = nbformat.v4.new_notebook(
        cells=[_node(number, cell) for number, cell in enumerate(everything)],
        metadata={
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            _OURS: {"markers": with_markers},
            **(metadata or {}),
        },
    )
    return str(nbformat.writes(notebook)) + "\n"


def _read(text: str) -> tuple[list[Cell], bool]:
    # Imported late: it brings a schema validator, which most commands do not need.
    from nbformat import ValidationError, reader

    if len(text) > MOST_NOTEBOOK_CHARACTERS:
        raise ScriptProblem(
            "script_too_large",
            f"The notebook has {len(text):,} characters; the limit is {MOST_NOTEBOOK_CHARACTERS:,}. "
            "Clear its outputs and save it again.",
        )
    try:
        # Not checked against the schema: many notebooks lack ids or outputs, and their code is complete.
        notebook = reader.reads(text)
        if notebook.nbformat != 4:
            raise AttributeError
        found = [_cell(cell, number) for number, cell in enumerate(notebook.cells, start=1)]
        with_markers = _ours(notebook).get("markers") is not False
    except (reader.NotJSONError, RecursionError) as problem:
        raise ScriptProblem(
            "not_json", f"The notebook is not valid JSON: {problem.__cause__ or problem}."
        ) from None
    except ScriptProblem:
        raise
    except (AttributeError, TypeError, ValueError, ValidationError):
        raise ScriptProblem(
            "not_a_notebook",
            "The file is not a notebook of version 4. Open it in Jupyter and save it again.",
        ) from None
    return [cell for cell in found if not cell.added], with_markers


def _cell(cell: Any, number: int) -> Cell:
    if cell.get("cell_type") not in {"code", "markdown", "raw"}:
        raise ScriptProblem("not_a_notebook", f"Cell {number} of the notebook is neither code nor text.")
    ours = _ours(cell)
    blank = ours.get("blank_lines", 0)
    return Cell(
        cell.cell_type,
        str(cell.get("source", "")).replace("\r\n", "\n"),
        bool(ours.get("added")),
        min(max(blank, 0), 100) if isinstance(blank, int) else 0,
    )


def _ours(node: Any) -> dict[str, Any]:
    """What GPU Bloom wrote into the metadata of a notebook or cell."""
    ours = node.metadata.get(_OURS)
    return ours if isinstance(ours, dict) else {}


def _node(number: int, cell: Cell) -> Any:
    from nbformat import v4

    ours = {"added": cell.added, "blank_lines": cell.blank_lines}
    ours = {name: value for name, value in ours.items() if value}
    new = {"code": v4.new_code_cell, "markdown": v4.new_markdown_cell, "raw": v4.new_raw_cell}[cell.kind]
    return new(cell.source, id=f"cell-{number}", metadata={_OURS: ours} if ours else {})


def _added(cell: Cell) -> Cell:
    return Cell(cell.kind, cell.source, added=True)


def _source(cell: Cell) -> str:
    """The Python code of a cell; lines that are not Python become comments."""
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
    """Cells of a script with markers; the lines before the first marker are a cell of their own."""
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

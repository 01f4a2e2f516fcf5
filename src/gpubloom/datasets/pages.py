"""preview: a page of rows, raw and as the model will see them, trained pieces marked."""

from dataclasses import dataclass
from typing import Any

from gpubloom.datasets.model_files import ModelFiles
from gpubloom.datasets.problems import RowProblem
from gpubloom.datasets.rendering import Piece, render
from gpubloom.datasets.row_index import known_rows, row_start
from gpubloom.datasets.rows import Row
from gpubloom.datasets.shaping import Mapping, to_example
from gpubloom.datasets.source import Source
from gpubloom.datasets.template import ChatTemplate


@dataclass(frozen=True, slots=True)
class PreviewRow:
    """One row; `problem` says why it cannot be used, `remarks` what to know although it can."""

    number: int
    line: int | None
    raw: dict[str, Any] | str | None
    pieces: tuple[Piece, ...] = ()
    tokens: int | None = None
    trained_tokens: int | None = None
    problem: str | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """Rows of one page; `total` is None as long as nobody has counted them."""

    number: int
    rows: tuple[PreviewRow, ...]
    total: int | None


def preview(
    source: Source,
    *,
    mapping: Mapping | None,
    page: int = 1,
    page_rows: int = 20,
    model: ModelFiles | None = None,
    keep_index: bool = True,
) -> Page:
    """Page 1 is the first. Without a model, the plain template is used. An index that has to be built is
    written beside the file, unless `keep_index` says no."""
    if page < 1 or page_rows < 1:
        raise ValueError("Pages are counted from 1 and have at least one row.")
    first = (page - 1) * page_rows + 1
    template = model.template if model else ChatTemplate.plain()
    shown = []
    for row in source.rows(row_start(source, first, keep=keep_index)):
        if row.number < first:
            continue
        shown.append(_show(row, mapping, template, model))
        if len(shown) == page_rows:
            break
    return Page(page, tuple(shown), known_rows(source))


def _show(row: Row, mapping: Mapping | None, template: ChatTemplate, model: ModelFiles | None) -> PreviewRow:
    if row.values is None:
        return PreviewRow(row.number, row.line, row.beginning, problem=row.problem)
    if mapping is None:
        return PreviewRow(row.number, row.line, row.values)
    try:
        example = to_example(row.values, mapping)
        # Only to find what the inspection would find as well.
        example.digest()
        rendered = render(example, template)
    except RowProblem as problem:
        return PreviewRow(row.number, row.line, row.values, problem=str(problem))
    tokens = trained = None
    if model is not None:
        encoded = model.tokenizer.encode(rendered)
        tokens, trained = len(encoded), sum(encoded.trained)
    return PreviewRow(
        row.number, row.line, row.values, rendered.pieces(), tokens, trained, remarks=rendered.remarks
    )

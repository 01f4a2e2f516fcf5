"""Datasets for fine-tuning: from a file that a person has to examples, their text, tokens and faults.

Service and training packages both use it. It knows no torch, no server and no run directory; what it needs
beyond the standard library (pyarrow, Jinja2, tokenizers) it imports when it is used.

    source = Source.open(Path("chats.jsonl"))      # NotADataset says why a file is none
    report = inspect(source)                       # one pass: columns, format, problems, lengths, duplicates
    page = preview(source, mapping=report.mapping)
    convert(source, report.mapping, Path("messages.jsonl"))

Row by row: `source.rows()` gives a Row, `to_example(row.values, mapping)` an Example, `render(example,
template)` its text with the trained spans, `RowTokenizer.encode(rendered)` ids and mask. A row that cannot be
used raises RowProblem (or carries `problem`), and never stops the rows after it.
"""

from gpubloom.datasets.columns import Column
from gpubloom.datasets.conversion import Converted, Split, convert
from gpubloom.datasets.detection import Detection, advice, detect, sample
from gpubloom.datasets.example import Example, Message
from gpubloom.datasets.example_reader import (
    ExampleFile,
    ReadingOptions,
    example_files,
    mapping_of,
    read_examples,
)
from gpubloom.datasets.inspection import Duplicates, Lengths, Report, inspect
from gpubloom.datasets.model_files import ModelFiles, RowTokenizer, Tokens
from gpubloom.datasets.pages import Page, PreviewRow, RowIndex, build_index, index_path, preview, row_start
from gpubloom.datasets.preflight import FilePreflight, Preflight, RopeScaling, SideCounts, preflight
from gpubloom.datasets.problems import NotADataset, Problem, ProblemLog, RowProblem
from gpubloom.datasets.rendering import Piece, Rendered, render
from gpubloom.datasets.rows import Progress, Row, Start
from gpubloom.datasets.shaping import FIELDS, Format, Mapping, to_example
from gpubloom.datasets.source import SUFFIXES, Source, readable_suffixes
from gpubloom.datasets.template import ChatTemplate

__all__ = [
    "FIELDS",
    "SUFFIXES",
    "ChatTemplate",
    "Column",
    "Converted",
    "Detection",
    "Duplicates",
    "Example",
    "ExampleFile",
    "FilePreflight",
    "Format",
    "Lengths",
    "Mapping",
    "Message",
    "ModelFiles",
    "NotADataset",
    "Page",
    "Piece",
    "Preflight",
    "PreviewRow",
    "Problem",
    "ProblemLog",
    "Progress",
    "ReadingOptions",
    "Rendered",
    "Report",
    "RopeScaling",
    "Row",
    "RowIndex",
    "RowProblem",
    "RowTokenizer",
    "SideCounts",
    "Source",
    "Split",
    "Start",
    "Tokens",
    "advice",
    "build_index",
    "convert",
    "detect",
    "example_files",
    "index_path",
    "inspect",
    "mapping_of",
    "preflight",
    "preview",
    "read_examples",
    "readable_suffixes",
    "render",
    "row_start",
    "sample",
    "to_example",
]

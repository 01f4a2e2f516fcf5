"""What is wrong with a file or with one of its rows, in sentences, and a log of them that cannot grow."""

import re
from dataclasses import dataclass, field

from gpubloom.errors import InputError

_MOST_KINDS = 100
_NUMBERS = re.compile(r"\d[\d,.]*")


class NotADataset(InputError):
    """A file that cannot be read as rows at all; the sentence says why and what to do."""


class TemplateLimit(InputError):
    """A chat template takes more time or memory than an honest one; ends the reading, not just one row."""


class RowProblem(InputError):
    """A row that cannot be used; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One row that cannot be used (`fatal`), or one that is used otherwise than a person might expect."""

    row: int
    line: int | None
    reason: str
    fatal: bool = True
    # That of the RowProblem, where there was one.
    code: str | None = None

    @property
    def where(self) -> str:
        return f"row {self.row}" if self.line is None else f"line {self.line}"


@dataclass
class ProblemLog:
    """Counts every problem and keeps the first ones."""

    keep: int = 20
    rows_refused: int = 0
    remarks: int = 0
    first: list[Problem] = field(default_factory=list)
    # By the reason without its particulars: a file has few kinds of problems and many problems.
    kinds: dict[str, int] = field(default_factory=dict)

    def add(self, problem: Problem) -> None:
        if problem.fatal:
            self.rows_refused += 1
        else:
            self.remarks += 1
        if len(self.first) < self.keep:
            self.first.append(problem)
        kind = _NUMBERS.sub("…", problem.reason)
        if kind not in self.kinds and len(self.kinds) >= _MOST_KINDS:
            kind = "other reasons"
        self.kinds[kind] = self.kinds.get(kind, 0) + 1

"""convert: any format to messages-JSONL, one file or one per side of a split, written whole or not at all.

Which examples are held out is decided by a hash of the example and a seed, so that appending rows moves none
of those already there, and equal examples never stand on both sides.
"""

import hashlib
import json
import secrets
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from gpubloom.datasets.problems import Problem, ProblemLog, RowProblem
from gpubloom.datasets.shaping import Mapping, to_example
from gpubloom.datasets.source import Source
from gpubloom.errors import InputError

SplitName = Literal["train", "eval"]


@dataclass(frozen=True, slots=True)
class Split:
    """The share that is held out, and the seed that chooses it."""

    eval_fraction: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.eval_fraction < 1:
            raise InputError(
                "invalid_eval_fraction",
                f"The eval fraction must be at least 0 and below 1, not {self.eval_fraction}.",
            )

    def of(self, digest: bytes) -> SplitName:
        """The side of the example with this digest."""
        key = self.seed.to_bytes(8, "big", signed=True)
        drawn = int.from_bytes(hashlib.blake2b(digest, digest_size=8, key=key).digest(), "big")
        return "eval" if drawn < self.eval_fraction * 2**64 else "train"


@dataclass(frozen=True, slots=True)
class Converted:
    """How many examples were written, and which rows were not."""

    train: int
    eval: int
    problems: ProblemLog


def convert(
    source: Source,
    mapping: Mapping,
    target: Path,
    *,
    eval_target: Path | None = None,
    split: Split | None = None,
    keep: int = 20,
) -> Converted:
    """Writes {"messages": …} (or {"text": …}) a line. Rows that cannot be used are counted and named."""
    split = split or Split()
    targets = {"train": target} | ({"eval": eval_target} if eval_target else {})
    if eval_target is None and split.eval_fraction > 0:
        raise InputError(
            "eval_target_missing", "The eval split needs its own target file: name a file for it."
        )
    if source.path.resolve() in {path.resolve() for path in targets.values()}:
        raise InputError(
            "would_overwrite", f"The target is the source file {source.path}: choose another target."
        )
    problems, counts = ProblemLog(keep), {"train": 0, "eval": 0}
    with ExitStack() as stack:
        files = {side: stack.enter_context(_Whole(path)) for side, path in targets.items()}
        for row in source.rows():
            try:
                if row.values is None:
                    raise RowProblem("row_unreadable", row.problem or "cannot be read")
                example = to_example(row.values, mapping)
                side = split.of(example.digest())
                line = json.dumps(example.record(), ensure_ascii=False, default=str)
            except RowProblem as problem:
                problems.add(Problem(row.number, row.line, str(problem)))
                continue
            files[side].write(line + "\n")
            counts[side] += 1
    return Converted(counts["train"], counts["eval"], problems)


class _Whole:
    """A file that appears under its name only when everything went well."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> IO[str]:
        self._partial = self._path.with_name(f".{secrets.token_hex(8)}.partial")
        try:
            self._file = self._partial.open("x", encoding="utf-8", newline="\n")
        except OSError as problem:
            raise InputError("cannot_write", f"{self._path} cannot be written: {problem.strerror}.") from None
        return self._file

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._file.close()
        if kind is None:
            self._partial.replace(self._path)
        else:
            self._partial.unlink(missing_ok=True)

"""convert: any format to messages-JSONL, one file or one per side of a split, written whole or not at all.

Which examples are held out is decided by a hash of the example and a seed, so that appending rows moves none
of those already there, and equal examples never stand on both sides. Of a file so small that chance could
hold out nothing, at least the asked share is held out.
"""

import hashlib
import json
import secrets
from bisect import bisect_left
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Generic, Literal, TypeVar

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
        """The side of the example with this digest, in a file that is not small."""
        return "eval" if self.draw(digest) < self.threshold else "train"

    def draw(self, digest: bytes) -> int:
        """A number below 2**64 that depends on the example and the seed alone."""
        key = self.seed.to_bytes(8, "big", signed=True)
        return int.from_bytes(hashlib.blake2b(digest, digest_size=8, key=key).digest(), "big")

    @property
    def threshold(self) -> int:
        """Examples whose draw is below it are held out."""
        return int(self.eval_fraction * 2**64)

    def threshold_for(self, draws: Collection[int]) -> int:
        """The threshold of a small file, with the draws of all of its examples: chance alone could hold out
        none of them, or all. At least the asked share is held out, one at the least, and one is trained."""
        different = sorted(set(draws))
        if not self.eval_fraction or len(different) < 2:
            return 0
        by_chance = bisect_left(different, self.threshold)
        least = max(1, int(self.eval_fraction * len(different)))
        return different[min(max(by_chance, least), len(different) - 1) - 1] + 1


# From so many expected on, chance holds out close to the share that was asked for.
_EXPECTED = 32
_MOST_BUFFERED = 4_096
_Item = TypeVar("_Item")


class SideChooser(Generic[_Item]):
    """Gives items their side in order. Those of a small file wait until all of them are known."""

    def __init__(self, split: Split) -> None:
        self._split = split
        self._waiting: list[tuple[int, _Item]] | None = [] if split.eval_fraction else None
        self._limit = min(_MOST_BUFFERED, _EXPECTED / split.eval_fraction) if split.eval_fraction else 0

    def add(self, digest: bytes, item: _Item) -> Iterator[tuple[SplitName, _Item]]:
        """The items whose side is now known."""
        drawn = self._split.draw(digest)
        if self._waiting is None:
            yield self._side(drawn, self._split.threshold), item
            return
        self._waiting.append((drawn, item))
        if len(self._waiting) > self._limit:
            yield from self._let_go(self._split.threshold)

    def rest(self) -> Iterator[tuple[SplitName, _Item]]:
        """The items that still wait, when there are no more to come."""
        if self._waiting is not None:
            yield from self._let_go(self._split.threshold_for([drawn for drawn, _ in self._waiting]))

    def _let_go(self, threshold: int) -> Iterator[tuple[SplitName, _Item]]:
        waiting, self._waiting = self._waiting or [], None
        for drawn, item in waiting:
            yield self._side(drawn, threshold), item

    @staticmethod
    def _side(drawn: int, threshold: int) -> SplitName:
        return "eval" if drawn < threshold else "train"


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
    for path in targets.values():
        if path.is_dir():
            raise InputError("cannot_write", f"{path} is a folder: name a file for the examples.")
    problems, counts = ProblemLog(), {"train": 0, "eval": 0}
    with ExitStack() as stack:
        files = {side: stack.enter_context(_Whole(path)) for side, path in targets.items()}
        chooser: SideChooser[str] = SideChooser(split)

        def write(chosen: Iterator[tuple[SplitName, str]]) -> None:
            for side, line in chosen:
                files[side].write(line + "\n")
                counts[side] += 1

        for row in source.rows():
            try:
                if row.values is None:
                    raise RowProblem("row_unreadable", row.problem or "cannot be read")
                example = to_example(row.values, mapping)
                digest = example.digest()
                line = json.dumps(example.record(), ensure_ascii=False, default=str)
            except RowProblem as problem:
                problems.add(Problem(row.number, row.line, str(problem)))
                continue
            write(chooser.add(digest, line))
        write(chooser.rest())
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

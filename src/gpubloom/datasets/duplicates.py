"""Examples that occur more than once, for files of any size: sorted runs of (digest, row) in a temporary
file, merged at the end. Memory holds one run."""

import heapq
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from types import TracebackType
from typing import IO

_RUN = 1 << 16
_RECORD = 16
_READ_RECORDS = 1_024


@dataclass(frozen=True, slots=True)
class Duplicates:
    """How many rows repeat an earlier one, and the first such groups by row number."""

    repeated: int
    groups: int
    first: tuple[tuple[int, ...], ...]


class DuplicateFinder:
    """Takes digests as they come and says at the end which rows are equal."""

    def __init__(self, keep: int = 20, rows_shown: int = 10) -> None:
        self._keep = keep
        self._rows_shown = rows_shown
        self._run: list[bytes] = []
        self._file: IO[bytes] | None = None
        self._runs: list[tuple[int, int]] = []

    def __enter__(self) -> "DuplicateFinder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, digest: bytes, row: int) -> None:
        self._run.append(digest + row.to_bytes(8, "big"))
        if len(self._run) == _RUN:
            self._write_run()

    def result(self) -> Duplicates:
        self._run.sort()
        sources = [self._read_run(begin, end) for begin, end in self._runs]
        repeated = groups = 0
        # The groups whose second row comes earliest, kept in a heap of fixed size.
        first: list[tuple[int, tuple[int, ...]]] = []
        for _, records in groupby(heapq.merge(*sources, self._run), key=lambda record: record[:8]):
            rows, count = [], 0
            for record in records:
                count += 1
                if count <= self._rows_shown:
                    rows.append(int.from_bytes(record[8:], "big"))
            if count > 1:
                repeated += count - 1
                groups += 1
                heapq.heappush(first, (-rows[1], tuple(rows)))
                if len(first) > self._keep:
                    heapq.heappop(first)
        return Duplicates(repeated, groups, tuple(sorted(rows for _, rows in first)))

    def _write_run(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the finder
        self._run.sort()
        begin = self._file.seek(0, 2)
        self._file.write(b"".join(self._run))
        self._runs.append((begin, self._file.tell()))
        self._run.clear()

    def _read_run(self, begin: int, end: int) -> Iterator[bytes]:
        assert self._file is not None
        while begin < end:
            self._file.seek(begin)
            content = self._file.read(min(_READ_RECORDS * _RECORD, end - begin))
            begin += len(content)
            for at in range(0, len(content), _RECORD):
                yield content[at : at + _RECORD]

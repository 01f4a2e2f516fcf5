"""Where things lie in a run directory, and which directory a Reporter belongs to."""

import errno
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

PROTOCOL_VERSION = 1

# Numbers of a size that every database holds: names may come from another machine.
_SEGMENT_NAME = re.compile(r"a(\d{1,9})\.r(\d{1,9})\.s(\d{1,9})\.jsonl", re.ASCII)
_TAIL_NAME = re.compile(r"events(?:\.rank(\d{1,9}))?\.jsonl", re.ASCII)
_LARGEST_ID = 10**9


@dataclass(frozen=True, order=True)
class StreamId:
    """Names one file's worth of events for good, whether it is still the open tail or already sealed."""

    attempt: int
    rank: int
    segment: int

    @property
    def is_valid(self) -> bool:
        """Whether a Reporter counts so far, and a database holds it."""
        return all(0 <= part < _LARGEST_ID for part in (self.attempt, self.rank, self.segment))

    def __str__(self) -> str:
        return f"a{self.attempt:04d}.r{self.rank:04d}.s{self.segment:04d}"


class RunFiles:
    """The paths of one run directory. Creates nothing."""

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self.run_dir = Path(run_dir)
        self.folder = self.run_dir / "traincard"
        self.segments = self.folder / "segments"
        self.attempts = self.folder / "attempts"
        self.latest = self.folder / "latest.json"
        self.checkpoints = self.folder / "checkpoints.json"
        self.control = self.folder / "control.json"
        self.control_lock = self.folder / "control.lock"

    def tail(self, rank: int) -> Path:
        return self.folder / ("events.jsonl" if rank == 0 else f"events.rank{rank}.jsonl")

    def lock(self, rank: int) -> Path:
        return self.folder / ("lock" if rank == 0 else f"lock.rank{rank}")

    def attempt_claim(self, attempt: int, rank: int) -> Path:
        return self.attempts / (f"{attempt:04d}" if rank == 0 else f"{attempt:04d}.rank{rank}")

    def segment(self, stream: StreamId) -> Path:
        return self.segments / f"{stream}.jsonl"

    def condensed(self, stream: StreamId) -> Path:
        return self.segments / f"{stream}.buckets.json"

    def sealed(self) -> dict[StreamId, Path]:
        """Sealed segments by what they hold, oldest attempt first; files of unknown names are left alone."""
        found = {}
        for entry in _entries(self.segments):
            if match := _SEGMENT_NAME.fullmatch(entry):
                attempt, rank, segment = (int(part) for part in match.groups())
                found[StreamId(attempt, rank, segment)] = self.segments / entry
        return dict(sorted(found.items()))

    def tails(self) -> list[Path]:
        return [self.folder / entry for entry in _entries(self.folder) if _TAIL_NAME.fullmatch(entry)]


_NO_FOLDER = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES}


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - a path for each name costs more than the listing
    except OSError as problem:
        # Nothing, or what a script has put there or closed, is no fault of the disk.
        if problem.errno not in _NO_FOLDER:
            raise
        return []


_finders: list[Callable[[], Path | None]] = []


def add_run_dir_finder(finder: Callable[[], Path | None]) -> None:
    """Lets a workflow system name the run directory of the task that runs in this process; None: not its.

    Asked after the Reporter's argument and BLOOM_RUN_DIR, before a new directory is made.
    """
    if finder not in _finders:
        _finders.append(finder)


def find_run_dir(given: str | os.PathLike[str] | None, environment: Mapping[str, str]) -> tuple[Path, bool]:
    """Argument, BLOOM_RUN_DIR, what a finder says, or a new ./runs/<time>; whether it had to be invented."""
    if given is not None:
        return Path(given).absolute(), False
    if named := environment.get("BLOOM_RUN_DIR"):
        return Path(named).absolute(), False
    for finder in _finders:
        if (found := finder()) is not None:
            return found.absolute(), False
    first = Path("runs", time.strftime("%Y%m%d-%H%M%S")).absolute()
    candidate, number = first, 1
    while candidate.exists():
        number += 1
        candidate = first.with_name(f"{first.name}-{number}")
    return candidate, True


def find_job_dir(environment: Mapping[str, str]) -> Path | None:
    """The run directory of the job whose agent started this process; None outside of jobs."""
    named = environment.get("BLOOM_RUN_DIR")
    return Path(named).absolute() if named and environment.get("BLOOM_JOB_ID") else None


def find_rank(environment: Mapping[str, str]) -> int:
    """This process's rank as torchrun, Slurm, MPI or a workflow say it; 0 without any of them."""
    names = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "MF_PARALLEL_NODE_INDEX")
    return _first_number(environment, names, default=0)


def find_world_size(environment: Mapping[str, str]) -> int:
    """The number of training processes; 1 if unknown."""
    names = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "MF_PARALLEL_NUM_NODES")
    return _first_number(environment, names, default=1)


def _first_number(environment: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    for name in names:
        if (text := environment.get(name, "")).isdecimal():
            return int(text)
    return default

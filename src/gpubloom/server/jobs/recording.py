"""What a run wrote since it was last looked at, and how it becomes rows.

The worker uses it for the jobs that it follows, the server for runs that are sent from elsewhere.

A piece is stored in one transaction with the cursor behind it, so it is stored once, whoever is killed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.errors import CodedError
from gpubloom.server.clock import now
from gpubloom.server.jobs.events import announce
from gpubloom.server.jobs.ingest import Batch, store_checkpoints, store_points
from gpubloom.server.jobs.summary import add_alerts, add_marks, add_warnings, read_summary, summarize
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.traincard import Reader, RunEvent, load_latest

# Stored in one transaction: some thousand points, so that the lock is held for a small part of a second.
PIECE_BYTES = 1 << 17

Result = TypeVar("Result")


class UnreadableRun(Exception):
    """What a run wrote cannot be read or stored. The message says why."""


def parse_run(work: Callable[[], Result]) -> Result:
    """Read the files of a run. Raises UnreadableRun if their form is not valid."""
    try:
        return work()
    except OSError:
        raise
    except CodedError as problem:
        raise UnreadableRun(str(problem).rstrip(".")) from problem
    except Exception as problem:
        raise UnreadableRun(f"a line is not as any run writes it ({type(problem).__name__})") from problem


@dataclass(frozen=True)
class Piece:
    """Events that are stored together, and the cursors before and behind them."""

    before: dict[str, int]
    after: dict[str, int]
    events: list[RunEvent]
    batch: Batch
    latest: dict[str, Any] | None
    damaged_lines: int


def read_piece(reader: Reader, run_dir: Path) -> Piece | None:
    """What comes next in the run directory, ready to be stored; None: nothing is new."""
    before = reader.cursor
    events = reader.read_new(PIECE_BYTES)
    after = reader.cursor
    if not events and after == before:
        return None
    return Piece(before, after, events, Batch(events), read_latest(run_dir), reader.damaged_lines)


def read_latest(run_dir: Path) -> dict[str, Any] | None:
    """Read latest.json; None if it cannot be read. It only repeats what the events contain."""
    try:
        return load_latest(run_dir)
    except ValueError:
        return None


async def store_piece(session: AsyncSession, row: TrainingJob, piece: Piece) -> None:
    """Store a piece. The row is locked, and its cursor is the one before the piece."""
    points = await store_points(session, row, piece.batch)
    changed = await store_checkpoints(session, row, piece.events)
    row.cursor = piece.after
    summary = summarize(read_summary(row.summary), piece.latest, piece.damaged_lines)
    add_marks(summary, piece.events, row.settings)
    add_warnings(summary, piece.events)
    add_alerts(summary, piece.events, now().timestamp())
    row.summary = summary.dump()
    await announce(session, row, points=points, checkpoints=changed)

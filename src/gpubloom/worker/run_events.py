"""From the files of a run to the rows of its job: each event is stored exactly once.

What a run wrote is not trusted: it may come from a rented machine or from a person's own script.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy.exc import DataError
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.jobs.recording import Piece, UnreadableRun, parse_run, read_piece, store_piece
from gpubloom.server.jobs.run_watch import RunWatch
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.traincard import Reader
from gpubloom.worker.held_job import HeldJob

_PIECES_AT_ONCE = 16

Result = TypeVar("Result")


async def look_at_run(work: Callable[[], Result]) -> Result:
    """Read the files of a run, in a thread. Raises UnreadableRun if their form is not valid."""
    return await asyncio.to_thread(parse_run, work)


class RunEvents:
    """Reads a run directory in pieces and stores them with the job."""

    def __init__(self, held: HeldJob, run_dir: Path, watch: RunWatch) -> None:
        self._held = held
        self._run_dir = run_dir
        self._watch = watch
        self._reader = Reader(run_dir, cursor=held.row.cursor)
        # SQLite writes in this process and asks for the interpreter's lock at every row: whatever is parsed
        # meanwhile would hold up the writing, and with it everybody who waits for the database.
        self._reads_ahead = held.database.kind != "sqlite"

    @property
    def cursor(self) -> dict[str, Any]:
        return self._reader.cursor

    @property
    def damaged_lines(self) -> int:
        return self._reader.damaged_lines

    async def store_new(self) -> bool:
        """Store the new events of the run; returns whether there may be more."""
        reading = self._start_reading()
        for left in reversed(range(_PIECES_AT_ONCE)):
            if (piece := await reading) is None:
                return False
            ahead = self._start_reading() if left and self._reads_ahead else None
            try:
                behind_at = await self._store(piece)
            finally:
                if ahead is not None:
                    # A thread cannot be stopped, and nobody else may use the reader meanwhile.
                    await asyncio.wait({ahead})
            if behind_at is not None:
                self.read_again_from(behind_at)
                return True
            if left:
                reading = ahead or self._start_reading()
        return True

    def read_again_from(self, cursor: dict[str, Any]) -> None:
        """The database forgot what it had committed (a crash, a backup): the run directory has not."""
        self._held.log.warning("the database is behind the run directory, reading the run again")
        self._reader = Reader(self._run_dir, cursor=cursor)

    def _start_reading(self) -> asyncio.Future[Piece | None]:
        return asyncio.ensure_future(look_at_run(self._next_piece))

    def _next_piece(self) -> Piece | None:
        """What comes next in the run directory, ready to be stored; None: nothing is new."""
        piece = read_piece(self._reader, self._run_dir)
        if piece is not None:
            self._watch.take_in(piece.events)
        return piece

    async def _store(self, piece: Piece) -> dict[str, Any] | None:
        """Store it, exactly once; where the database does not have what came before: its cursor."""

        async def stored(session: AsyncSession, row: TrainingJob) -> dict[str, Any] | None:
            if row.cursor == piece.before:
                await store_piece(session, row, piece)
            # After it: an earlier try was committed, but its answer was lost on the way.
            return None if row.cursor == piece.after else row.cursor

        try:
            return await self._held.change(stored)
        except (DataError, ValueError, TypeError, OverflowError, RecursionError) as problem:
            # A name or a number that no database holds.
            raise UnreadableRun(f"a value cannot be stored ({type(problem).__name__})") from problem

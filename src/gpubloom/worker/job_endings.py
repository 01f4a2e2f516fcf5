"""The end of a job of which nothing runs: it fails, waits again, or goes on with its next offer."""

import asyncio
import contextlib
from pathlib import Path
from typing import NoReturn

from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.clock import now
from gpubloom.server.jobs.events import announce
from gpubloom.server.jobs.lease import LeaseLost, release
from gpubloom.server.jobs.states import ENDED, after
from gpubloom.server.jobs.summary import with_waiting
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.worker.attempt_outcome import Verdict, judge_disk_fault, message_of
from gpubloom.worker.disk import DiskFault
from gpubloom.worker.failover import take_next_offer
from gpubloom.worker.held_job import HeldJob
from gpubloom.worker.launcher import LaunchFailed
from gpubloom.worker.run_directory import remove_secrets


async def end(held: HeldJob, run_dir: Path, code: str | None, message: str | None) -> NoReturn:
    """End a job of which nothing runs: as its owner asked, or as failed."""
    await asyncio.to_thread(remove_secrets, run_dir)

    async def ended(session: AsyncSession, row: TrainingJob) -> None:
        asked = row.status in {"pausing", "cancelling"}
        row.status = after("stop" if asked else "fail", row.status)
        if row.status in ENDED:
            row.end_time = now()
        if not asked:
            row.error_code = code
            row.error_message = None if message is None else message_of(message)
        release(row)
        await announce(session, row)

    await held.change(ended)
    raise LeaseLost("ended the job before it ran")


async def requeue(held: HeldJob, run_dir: Path, fault: DiskFault, *, confirmed: bool, began: int) -> NoReturn:
    """Queue a job again: the disk of this machine is at fault. `began`: the newest attempt that began."""
    with contextlib.suppress(OSError):
        await asyncio.to_thread(remove_secrets, run_dir)

    async def requeued(session: AsyncSession, row: TrainingJob) -> None:
        verdict = judge_disk_fault(
            fault,
            confirmed=confirmed,
            has_newer_checkpoint=False,
            attempts_without_progress=row.attempts_without_progress,
            max_attempts=row.max_attempts,
        )
        asked = row.status in {"pausing", "cancelling"}
        row.status = after("stop" if asked else verdict.action, row.status)
        if row.status in ENDED:
            row.end_time = now()
        if not asked:
            row.attempts_without_progress = verdict.attempts_without_progress
            row.error_code, row.error_message = verdict.code, verdict.message
            wait_in_queue(row, verdict, disk_fault_confirmed=confirmed)
        if began < row.attempt:
            # It never began: the next attempt has its number, and may be on another machine.
            row.attempt -= 1
            row.machine = row.machine if row.attempt else None
        release(row)
        await announce(session, row)

    await held.change(requeued)
    raise LeaseLost("queued the job again")


async def fail_over(held: HeldJob, failure: LaunchFailed) -> None:
    """Queue the job again for its next offer; returns if there is none."""

    async def moved(session: AsyncSession, row: TrainingJob) -> bool:
        if row.status not in {"provisioning", "running"}:
            return False
        if not take_next_offer(row, failure.kind, now()):
            return False
        row.status = after("retry", row.status)
        offer = row.offer or {}
        sentence = f"{failure} Next: {offer.get('gpu')} at {offer.get('title')}."
        row.summary = with_waiting(row.summary, message_of(sentence))
        release(row)
        await announce(session, row)
        return True

    if await held.change(moved):
        held.log.info("the job goes on with its next offer", reason=str(failure))
        raise LeaseLost("queued the job for its next offer")


def wait_in_queue(row: TrainingJob, verdict: Verdict, *, disk_fault_confirmed: bool) -> None:
    if verdict.waiting is None:
        return
    row.summary = with_waiting(row.summary, verdict.waiting)
    if not disk_fault_confirmed:
        # Other jobs may fit on this disk: they must not wait for this one.
        row.queued_at = now()

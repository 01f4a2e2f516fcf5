"""A rented machine as a provider of one attempt of one job: what the follower of any job asks for.

Calls to the bucket and to the service can take minutes, and the follower has a lease to keep: they happen in
a task of their own, and what the follower is told is always what is known by now. The run directory is here
(the receiver applies what arrives), so everything else reads it as ever.

Silence proves nothing while the bucket is away. A machine is given back before its attempt counts as over.
"""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import structlog

from gpubloom.agent import ExitRecord, JobSpec
from gpubloom.providers.base import AgentStatus, GracePeriod, ProviderError, Reservation
from gpubloom.providers.cloud import Instance
from gpubloom.scripts.task import WORK_FOLDER
from gpubloom.server.jobs.lease import LeaseLost
from gpubloom.server.jobs.script_files import read_brought
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.rentals.tables import Rental
from gpubloom.storage import Arrival, DamagedBatchError, Receiver, StorageError, Store
from gpubloom.storage.applying import ARRIVING, SCRIPT_PATHS, TRAINING_PATHS, AcceptedPaths
from gpubloom.storage.layout import JobLayout
from gpubloom.traincard import ControlFile
from gpubloom.worker.disk import fault_of
from gpubloom.worker.launcher import Launcher, NotStarted, longest_run
from gpubloom.worker.renting import Renting
from gpubloom.worker.retries import PollIntervals, RetryingCalls
from gpubloom.worker.spending import Spending

log = structlog.get_logger("bloom.worker")

_GONE = {"ended", "lost"}


class RemoteProvider:
    """One attempt. `open` it before the follower asks anything, `close` it when the follower is done."""

    def __init__(
        self,
        job: TrainingJob,
        run_dir: Path,
        store: Store,
        renting: Renting,
        spending: Spending,
        poll_intervals: PollIntervals,
    ) -> None:
        # Told by control.json, the agent obeys, saves and delivers; that takes longer than a signal here.
        self.grace_period = GracePeriod(stop_seconds=600.0, force_seconds=900.0)
        self._job, self._attempt, self._run_dir, self._store = job, job.attempt, run_dir, store
        self._renting, self._spending, self._poll_intervals = renting, spending, poll_intervals
        self.log = log.bind(job=str(job.id), provider=job.target)
        self._calls = RetryingCalls(f"bucket {job.id}", self.log)
        self._task: asyncio.Task[None] | None = None
        self._rental: Rental | None = None
        self._spoke = self._must_end = self._over = False
        self._hears = True
        self._left_out: set[str] = set()
        self._exit: ExitRecord | None = None
        self._refusal: NotStarted | None = None

    async def open(self) -> None:
        """Finds what an earlier worker rented for this attempt."""
        try:
            await self._renting.prepare()
        except ProviderError as problem:
            self._refusal = NotStarted("refused", str(problem))
            return
        self._rental = await self._renting.find(self._attempt)
        if self._rental is not None and (self._rental.instance_id is not None or await self._has_spoken()):
            self._attend(None)

    async def close(self) -> None:
        """The machine goes on; another worker finds it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._calls.close()
        await self._renting.close()

    def reserve(self, gpus: int, *, side_slot: bool = False) -> Reservation | None:
        """Nothing of this machine is needed."""
        return Reservation((), (), {})

    async def submit(self, spec: JobSpec, reservation: Reservation) -> None:
        """Begins to rent a machine; whether that works out, `status` tells."""
        if self._task is None:
            self._rental = self._rental or await self._renting.begin(self._attempt)
            self._attend(spec)

    async def status(self, run_dir: Path, attempt: int) -> AgentStatus:
        """`attempt` counts as started once its agent has spoken. NotStarted: there will be no machine."""
        if self._refusal is not None:
            raise self._refusal
        if self._task is None:
            return AgentStatus(alive=False, agent_alive=False, attempt=attempt - 1, exit=None)
        if self._task.done() and not self._over:
            self._task.result()
            raise LeaseLost(f"job {self._job.id}")
        is_alive = not self._over
        started = attempt if self._spoke or self._over else attempt - 1
        return AgentStatus(alive=is_alive, agent_alive=is_alive, attempt=started, exit=self._exit)

    async def stop(self, run_dir: Path, *, force: bool) -> None:
        """control.json has told the agent already; with `force` the machine is given back at once."""
        self._must_end = self._must_end or force

    def _attend(self, spec: JobSpec | None) -> None:
        self._task = asyncio.create_task(self._run(spec), name=f"attend {self._job.id}")

    async def _run(self, spec: JobSpec | None) -> None:
        """From a job, or from the machine that an earlier worker rented, to its end."""
        try:
            if spec is None or await self._rent(spec):
                await self._follow()
        except NotStarted as refusal:
            self._refusal = refusal
        except LeaseLost:
            self.log.warning("this worker does not attend the rented machine any more")

    async def _rent(self, spec: JobSpec) -> bool:
        launcher = Launcher(
            self._job,
            self._run_dir,
            self._store,
            self._renting,
            self._spending,
            self._poll_intervals,
            self._calls,
            self._is_unwanted,
            self._has_spoken,
        )
        instance = await launcher.rent(spec, self._rental_id)
        if instance is None:
            if launcher.was_asked:
                # A request whose answer was lost may have started a machine.
                await self._terminate()
            else:
                await self._calls.insist(lambda: self._spending.end(self._rental_id, "Nobody was asked."))
            self._over = True
            return False
        await self._calls.insist(lambda: self._spending.note(self._rental_id, instance))
        self.log.info("a machine is rented", instance=instance.id, attempt=self._attempt)
        return True

    @property
    def _rental_id(self) -> UUID:
        assert self._rental is not None
        return self._rental.id

    async def _has_spoken(self) -> bool:
        """Whether an agent of this attempt was ever heard of: then there was a machine, whoever says what."""
        layout = JobLayout(str(self._job.id), self._attempt)
        if (self._run_dir / ARRIVING / f"received-{self._attempt}.json").exists():
            return True
        try:
            return bool(await self._calls.in_thread(lambda: self._store.sizes(layout.batches)))
        except StorageError as problem:
            self.log.warning("the bucket does not answer, trying again", reason=str(problem))
            return False

    def _is_unwanted(self) -> bool:
        return self._must_end or ControlFile(self._run_dir).read().want != "run"

    async def _follow(self) -> None:
        receiver = await self._calls.in_thread(
            lambda: Receiver(
                self._store,
                str(self._job.id),
                self._attempt,
                self._run_dir,
                accepted=_accepted_paths(self._job, self._run_dir),
            )
        )
        looked = metered = -1e9
        stop_by: float | None = None
        silent_since = time.monotonic()
        while True:
            arrival = await self._receive(receiver)
            if arrival is not None and arrival.state in {"ended", "vanished"}:
                return await self._finish(arrival.exit)
            if arrival is not None and arrival.applied:
                self._spoke = True
            if self._must_end or (not self._spoke and self._is_unwanted()):
                return await self._finish(None)
            clock, instance = time.monotonic(), None
            if clock - looked >= self._poll_intervals.look:
                looked = clock
                instance = await self._look()
            if instance is not None and instance.state in _GONE:
                return await self._finish(await self._last_words(receiver))
            if instance is not None or clock - metered >= self._poll_intervals.meter:
                metered = clock
                if await self._reached_limit(instance) and stop_by is None:
                    stop_by = clock + self._poll_intervals.checkpoint
            if stop_by is not None and clock > stop_by:
                self.log.warning("the job did not end in time at its limit: its machine is given back")
                return await self._finish(None)
            if self._spoke or (instance is not None and instance.state == "starting"):
                silent_since = clock
            elif clock - silent_since > self._poll_intervals.first_word:
                self.log.warning("the machine runs, and its agent never spoke: it is given back")
                return await self._finish(None)
            await asyncio.sleep(self._poll_intervals.receive)

    async def _receive(self, receiver: Receiver) -> Arrival | None:
        """None: the bucket is away, this machine's disk cannot be written, or what arrived is damaged."""
        try:
            arrival = await self._calls.in_thread(receiver.once)
        except StorageError as problem:
            if self._hears:
                self.log.warning("the bucket does not answer, trying again", reason=str(problem))
            self._hears = False
        except DamagedBatchError as problem:
            self.log.error("what arrived cannot be used: the attempt ends", reason=str(problem))
            self._must_end = True
        except OSError as problem:
            if (fault := fault_of(problem)) is None:
                raise
            # The rented machine goes on; what it sends waits in the bucket.
            if self._hears:
                self.log.warning("what arrived cannot be written, trying again", reason=fault.sentence)
            self._hears = False
        else:
            if not self._hears:
                self.log.info("the run is received again")
            self._hears = True
            if new := set(arrival.left_out) - self._left_out:
                self._left_out |= new
                self.log.info("files of the machine that no run sends are left there", names=sorted(new)[:10])
            return arrival
        return None

    async def _last_words(self, receiver: Receiver) -> ExitRecord | None:
        """The machine is gone; what it delivered before lies in the bucket, whenever that answers."""
        while not self._must_end:
            arrival = await self._receive(receiver)
            if arrival is not None and (arrival.state == "ended" or not arrival.news):
                return arrival.exit
            if arrival is None:
                await asyncio.sleep(self._poll_intervals.first_pause)
        return None

    async def _look(self) -> Instance | None:
        """What the service says; None while it does not answer."""
        try:
            return await self._renting.status(self._attempt)
        except ProviderError as problem:
            # Not a word about the job: that arrives through the bucket.
            self.log.warning("the service does not say how its machine is", reason=str(problem))
            return None

    async def _reached_limit(self, instance: Instance | None) -> bool:
        decision = await self._calls.insist(lambda: self._spending.note(self._rental_id, instance))
        return decision.action == "stop"

    async def _finish(self, ended: ExitRecord | None) -> None:
        await self._terminate()
        if ended is not None and ended.reason == "time_limit":
            longest = self._renting.longest_seconds
            ran = ended.ended_at - ended.started_at
            if longest is not None and ran >= longest_run(longest, self._poll_intervals) - 1:
                # The machine's time was up, not the job's: it goes on from its checkpoint on another one.
                ended = replace(ended, reason="stopped")
            else:
                await self._calls.insist(lambda: self._spending.note(self._rental_id, None, is_over=True))
        self._exit = ended
        self._over = True

    async def _terminate(self) -> None:
        """Ends the machine and its bill. One that cannot be ended now is left to the reconciler."""
        until, pause = time.monotonic() + self._poll_intervals.terminate, self._poll_intervals.first_pause
        instance: Instance | None = None
        while True:
            try:
                instance = await self._renting.terminate(self._attempt)
            except ProviderError as problem:
                self.log.warning("the machine cannot be given back yet", reason=str(problem))
                if time.monotonic() + pause > until or not getattr(problem, "passes", False):
                    await self._calls.insist(lambda: self._spending.note(self._rental_id, None))
                    return
            else:
                if instance is None or instance.state in _GONE or time.monotonic() > until:
                    break
            await asyncio.sleep(pause)
            pause *= 2
        terminated = instance
        if terminated is None:
            await self._calls.insist(lambda: self._spending.end(self._rental_id, "No machine was rented."))
        else:
            await self._calls.insist(lambda: self._spending.note(self._rental_id, terminated))


def _accepted_paths(job: TrainingJob, run_dir: Path) -> AcceptedPaths:
    """What the machine of a job may send; a script's own files stay as its owner brought them."""
    if job.kind != "script":
        return TRAINING_PATHS
    return SCRIPT_PATHS.without(f"{WORK_FOLDER}/{name}" for name in read_brought(run_dir))

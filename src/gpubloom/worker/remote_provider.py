"""A rented instance as the provider of one attempt of one job, with the methods that the follower calls.

Calls to the bucket and to the cloud provider can take minutes, and the follower has a lease to renew: they
happen in a task of their own, and the follower is always told what is known by now. The receiver applies what
arrives to the run directory of this machine, so everything else reads it as that of a local run.

Silence proves nothing while the store is away, nor while the provider says that the instance runs: it may
have lost its network, and is waited for. The instance is terminated before its attempt counts as over.

What the instance sends is not trusted. Data that cannot be accepted, or that makes anything here fail, ends
the attempt and the instance: it is neither tried again for ever nor paid for.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

from gpubloom.agent import ExitRecord, JobSpec
from gpubloom.providers.base import AgentStatus, GracePeriod, ProviderError, Reservation
from gpubloom.providers.cloud import Fault, Instance
from gpubloom.scripts.task import WORK_FOLDER
from gpubloom.server.jobs.files import read_brought
from gpubloom.server.jobs.lease import LeaseLost
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.storage import (
    Arrival,
    DamagedBatchError,
    MachineUnreachable,
    Receiver,
    SshStore,
    StorageError,
)
from gpubloom.traincard import ControlFile
from gpubloom.traincard.retry import RetryPolicy, retry_async
from gpubloom.traincard.sync.accepted import (
    SCRIPT_PATHS,
    TASK_PATHS,
    TRAINING_PATHS,
    AcceptedPaths,
    Limits,
)
from gpubloom.worker.disk import fault_of
from gpubloom.worker.launcher import LaunchCancelled, LaunchFailed, launch, longest_run
from gpubloom.worker.remote_attempt import PollIntervals, RemoteAttempt
from gpubloom.worker.retries import is_outage
from gpubloom.worker.start_progress import StartProgress

_GONE = {"ended", "lost"}


class Silence:
    """Since when an instance has not reported, of one that never has."""

    def __init__(self, intervals: PollIntervals, now: float) -> None:
        self._intervals, self._asked = intervals, now
        # A provider that does not answer counts as one that runs the instance: it may bill it.
        self._running: float | None = now

    def why_hopeless(self, instance: Instance | None, now: float) -> str | None:
        """A sentence for the owner when waiting longer would only cost more. `instance`: if it was seen."""
        if instance is not None and instance.state == "starting":
            self._running = None
        elif instance is not None and self._running is None:
            self._running = now
        if self._running is not None and now - self._running > self._intervals.first_word:
            minutes = round(self._intervals.first_word / 60)
            return (
                f"The machine ran for {minutes} minutes, but the job on it never reported. The machine was "
                "terminated. Choose another offer, or look at the log of the start."
            )
        if self._running is None and now - self._asked > self._intervals.starting:
            minutes = round(self._intervals.starting / 60)
            return (
                f"The provider did not start the machine within {minutes} minutes. The machine was "
                "terminated. Choose another offer."
            )
        return None


class RemoteProvider:
    """One attempt. `open` it before the follower asks anything, `close` it when the follower is done."""

    def __init__(self, attempt: RemoteAttempt) -> None:
        # The agent reads control.json, saves and uploads, which takes longer than a signal on this machine.
        self.grace_period = GracePeriod(stop_seconds=600.0, force_seconds=900.0)
        self._attempt, self.log = attempt, attempt.log
        self._instance, self._spending = attempt.instance, attempt.spending
        self._intervals, self._clock = attempt.poll_intervals, attempt.clock
        self._task: asyncio.Task[None] | None = None
        self._has_reported = self._must_end = self._over = self._heard = False
        self._bucket_answers = True
        # The machine is the store, and this server cannot connect to it.
        self._machine_away = False
        self._left_out: set[str] = set()
        self._exit: ExitRecord | None = None
        self._refused: str | None = None
        self._failure: LaunchFailed | None = None
        self._silence = Silence(self._intervals, self._clock.now())
        self._progress = StartProgress(attempt, self._intervals.first_word)

    async def open(self) -> None:
        """Find what an earlier worker rented for this attempt."""
        try:
            rental = await self._instance.prepare()
        except ProviderError as problem:
            self._failure = LaunchFailed("refused", str(problem))
            return
        if rental is not None and (rental.instance_id is not None or await self._attempt.has_reported()):
            self._begin(None)

    async def close(self) -> None:
        """Stop following. The instance keeps running, and another worker finds it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._attempt.close()

    def reserve(self, gpus: int, *, side_slot: bool = False) -> Reservation | None:
        """No device of this machine is needed."""
        return Reservation((), (), {})

    async def submit(self, spec: JobSpec, reservation: Reservation) -> None:
        """Begin to rent an instance; `status` reports whether that succeeded."""
        if self._task is None:
            await self._instance.begin()
            self._begin(spec)

    async def status(self, run_dir: Path, attempt: int) -> AgentStatus:
        """`attempt` counts as started once its agent has reported. LaunchFailed: there is no instance."""
        if self._failure is not None:
            raise self._failure
        if self._task is None:
            return AgentStatus(alive=False, agent_alive=False, attempt=attempt - 1, exit=None)
        if self._task.done() and not self._over:
            self._task.result()
            raise LeaseLost(f"job {self._attempt.job.id}")
        is_alive = not self._over
        started = attempt if self._has_reported or self._over else attempt - 1
        return AgentStatus(is_alive, is_alive, started, self._exit, self._refused)

    async def stop(self, run_dir: Path, *, force: bool) -> None:
        """control.json has told the agent already; with `force` the instance is terminated at once."""
        self._must_end = self._must_end or force

    def _begin(self, spec: JobSpec | None) -> None:
        self._task = asyncio.create_task(self._run(spec), name=f"attend {self._attempt.job.id}")

    async def _run(self, spec: JobSpec | None) -> None:
        """Launch the job, unless an earlier worker did (`spec` is None), and follow it to its end."""
        try:
            if spec is None or await self._launch(spec):
                await self._follow()
        except LaunchFailed as failure:
            await self._progress.fail(failure.kind, str(failure))
            self._failure = failure
        except LeaseLost:
            self.log.warning("this worker no longer follows the rented instance")
        except Exception as problem:
            if is_outage(problem) or fault_of(problem) is not None:
                # No error of the instance: the lease expires, and a worker follows it again.
                raise
            self.log.error("following the rented instance failed: ending the attempt", exc_info=problem)
            self._refused = "The worker could not handle what the rented instance sent."
            await self._finish(None)

    async def _launch(self, spec: JobSpec) -> bool:
        await self._progress.requested()
        building = asyncio.create_task(self._watch_build())
        try:
            instance = await launch(self._attempt, spec, self._is_cancelled)
        except LaunchCancelled as cancelled:
            if cancelled.was_asked:
                # A request whose answer was lost may have started an instance.
                await self._terminate()
            else:
                await self._spending.end(
                    self._instance.rental_id, "No instance was requested from the provider."
                )
            self._over = True
            return False
        finally:
            building.cancel()
            await asyncio.gather(building, return_exceptions=True)
        await self._spending.note(self._instance.rental_id, instance)
        await self._progress.look(instance)
        self.log.info("rented an instance", instance=instance.id, attempt=self._attempt.job.attempt)
        return True

    async def _watch_build(self) -> None:
        """Some providers build an image first, which takes minutes: its log is shown meanwhile."""
        while True:
            await asyncio.sleep(self._intervals.receive)
            await self._progress.look_at_build()

    def _is_cancelled(self) -> bool:
        return self._must_end or ControlFile(self._attempt.run_dir).read().want != "run"

    async def _follow(self) -> None:
        job, run_dir = self._attempt.job, self._attempt.run_dir
        receiver = await self._attempt.in_thread(
            lambda: Receiver(
                self._attempt.store,
                str(job.id),
                job.attempt,
                run_dir,
                accepted=accepted_paths(job, run_dir),
                limits=Limits(run_bytes=self._attempt.most_bytes),
                clock=self._clock.now,
            )
        )
        looked = metered = -1e9
        stop_by: float | None = None
        self._silence = Silence(self._intervals, self._clock.now())
        is_machine = isinstance(self._attempt.store, SshStore)
        overdue = _OverdueBatch(self._intervals.silence, counts_with_provider=is_machine)
        while True:
            arrival = await self._receive(receiver)
            if arrival is not None:
                await self._note_first_batch(arrival)
                if arrival.state in {"ended", "vanished"}:
                    return await self._finish(arrival.exit)
            if self._must_end or (not self._has_reported and self._is_cancelled()):
                return await self._finish(None)
            clock, instance = self._clock.now(), None
            if overdue.began(self._is_silent(arrival), clock) or clock - looked >= self._intervals.look:
                looked = clock
                instance = await self._look()
                overdue.asked(instance, clock)
            if await self._start_failed(instance):
                return await self._end_start()
            if instance is not None and instance.state in _GONE:
                return await self._finish(await self._receive_rest(receiver))
            if instance is not None or clock - metered >= self._intervals.meter:
                metered = clock
                if await self._reached_limit(instance) and stop_by is None:
                    stop_by = clock + self._intervals.checkpoint
            if overdue.is_too_long(clock) or (stop_by is not None and clock > stop_by):
                self.log.warning("the instance neither reports nor stops in time: terminating it")
                return await self._finish(None)
            if (sentence := self._why_hopeless(arrival, instance, clock)) is not None:
                return await self._give_up(sentence)
            await self._clock.sleep(self._intervals.receive)

    def _is_silent(self, arrival: Arrival | None) -> bool | None:
        """Whether the next batch is overdue; None: the store is away, so that nobody could be heard."""
        if arrival is None:
            return True if self._machine_away else None
        return arrival.state == "silent"

    async def _receive(self, receiver: Receiver) -> Arrival | None:
        """None: the bucket is away, this machine's disk cannot be written, or a batch is damaged."""
        self._machine_away = False
        try:
            arrival = await self._attempt.in_thread(receiver.once)
        except StorageError as problem:
            self._machine_away = isinstance(problem, MachineUnreachable)
            if self._bucket_answers:
                self.log.warning("the bucket does not answer, trying again", reason=str(problem))
            self._bucket_answers = False
        except DamagedBatchError as problem:
            self.log.error("received unusable data: ending the attempt", reason=str(problem))
            self._refused = f"The rented instance sent data that was not accepted: {problem}."
            self._must_end = True
        except OSError as problem:
            # This machine's: the rented instance goes on, and what it sends waits in the bucket.
            if self._bucket_answers:
                self.log.warning("could not write received data, trying again", reason=str(problem))
            self._bucket_answers = False
        else:
            if not self._bucket_answers:
                self.log.info("receiving data from the instance again")
            self._bucket_answers = True
            if new := set(arrival.left_out) - self._left_out:
                self._left_out |= new
                self.log.info("rejected files from the instance", names=sorted(new)[:10])
            return arrival
        return None

    async def _receive_rest(self, receiver: Receiver) -> ExitRecord | None:
        """The instance is gone; what it uploaded before lies in the bucket, once that answers."""
        while not self._must_end:
            arrival = await self._receive(receiver)
            if arrival is not None and (arrival.state == "ended" or not (arrival.news or arrival.waits)):
                return arrival.exit
            if self._machine_away:
                # The store was the machine.
                return None
            if arrival is None or arrival.waits:
                await self._clock.sleep(self._intervals.first_pause)
        return None

    async def _look(self) -> Instance | None:
        """The state that the provider reports; None while it does not answer."""
        try:
            instance = await self._instance.status()
        except ProviderError as problem:
            # This says nothing about the job, whose reports arrive through the bucket.
            self.log.warning("the provider does not report the state of its instance", reason=str(problem))
            return None
        await self._attempt.reach(instance)
        return instance

    async def _reached_limit(self, instance: Instance | None) -> bool:
        decision = await self._spending.note(self._instance.rental_id, instance)
        return decision.action == "stop"

    async def _finish(self, ended: ExitRecord | None) -> None:
        await self._terminate()
        if ended is not None and ended.reason == "time_limit":
            longest = self._instance.longest_seconds
            ran = ended.ended_at - ended.started_at
            if longest is not None and ran >= longest_run(longest, self._intervals) - 1:
                # The instance's time was up, not the job's, which goes on from its checkpoint on another one.
                ended = replace(ended, reason="stopped")
            else:
                await self._spending.note(self._instance.rental_id, None, is_over=True)
        self._exit = ended
        self._over = True

    def _why_hopeless(self, arrival: Arrival | None, instance: Instance | None, now: float) -> str | None:
        if arrival is None or self._has_reported or self._heard:
            # Without the bucket nothing can be heard at the moment.
            self._silence = Silence(self._intervals, now)
            return None
        sentence = self._silence.why_hopeless(instance, now)
        store = self._attempt.store
        if sentence is not None and isinstance(store, SshStore) and store.problem is not None:
            sentence = f"{sentence} This server could not connect to it over SSH: {store.problem}."
        return sentence

    async def _note_first_batch(self, arrival: Arrival) -> None:
        if arrival.applied and not self._has_reported:
            self._has_reported = True
            await self._progress.done()

    async def _start_failed(self, instance: Instance | None) -> bool:
        """Whether the machine said that it cannot run the job, before its agent has reported."""
        if self._has_reported:
            return False
        self._heard = await self._progress.look(instance)
        return self._progress.failure is not None

    async def _end_start(self) -> None:
        """The machine said why it cannot run the job."""
        failure = self._progress.failure
        assert failure is not None
        self.log.warning("the start of the instance failed", code=failure.code, reason=failure.sentence)
        if self._progress.tries_again:
            await self._finish(None)
            return
        await self._terminate()
        self._failure = LaunchFailed(failure.code, failure.sentence)

    async def _give_up(self, sentence: str) -> None:
        """The machine never reported: another one like it would not either, and would be paid for again."""
        self.log.warning("the agent of the instance never reported: terminating the instance")
        await self._terminate()
        await self._progress.fail("agent_silent", sentence)
        self._failure = LaunchFailed("agent_silent", sentence)

    async def _terminate(self) -> None:
        """Terminate the instance and end its bill. The reconciler ends what cannot be terminated now."""
        policy = RetryPolicy(
            self._intervals.first_pause, self._intervals.terminate, max_seconds=self._intervals.terminate
        )
        try:
            instance = await retry_async(
                self._terminate_once, policy, is_transient=_can_terminate_later, wait=self._wait_to_terminate
            )
        except _StillBilled as problem:
            instance = problem.instance
        except ProviderError as problem:
            self.log.warning("could not terminate the instance", reason=str(problem))
            await self._spending.note(self._instance.rental_id, None)
            return
        if instance is None:
            await self._spending.end(self._instance.rental_id, "No machine was rented.")
        else:
            await self._spending.note(self._instance.rental_id, instance)

    async def _terminate_once(self) -> Instance | None:
        instance = await self._instance.terminate()
        if instance is None or instance.state in _GONE:
            return instance
        raise _StillBilled(instance)

    async def _wait_to_terminate(self, problem: Exception, pause: float) -> None:
        if isinstance(problem, ProviderError):
            self.log.warning("could not terminate the instance yet", reason=str(problem))
        await self._clock.sleep(pause)


class _OverdueBatch:
    """The time since the next batch of an instance is overdue. It is waited for `longest` seconds."""

    def __init__(self, longest: float, *, counts_with_provider: bool) -> None:
        self._longest, self._counts_with_provider = longest, counts_with_provider
        self._since: float | None = None

    def began(self, is_silent: bool | None, now: float) -> bool:
        """Whether the instance fell silent since the last call: a reason to ask its provider at once.

        `is_silent`: None says nothing, because nobody could be heard.
        """
        if is_silent is None:
            return False
        was_silent = self._since is not None
        if is_silent != was_silent:
            self._since = now if is_silent else None
        return is_silent and not was_silent

    def asked(self, instance: Instance | None, now: float) -> None:
        """Where the machine is the store and its provider does not answer either, it is this server that has
        no network: the time does not count."""
        if instance is None and self._counts_with_provider and self._since is not None:
            self._since = now

    def is_too_long(self, now: float) -> bool:
        return self._since is not None and now - self._since > self._longest


class _StillBilled(Exception):
    """The provider was asked to terminate an instance and still lists it."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance.id)
        self.instance = instance


def _can_terminate_later(problem: Exception) -> bool:
    return isinstance(problem, _StillBilled) or (isinstance(problem, Fault) and problem.passes)


def accepted_paths(job: TrainingJob, run_dir: Path) -> AcceptedPaths:
    """What the instance of a job may send; a script's own files stay as its owner uploaded them."""
    match job.kind:
        case "train":
            return TRAINING_PATHS
        case "script":
            return SCRIPT_PATHS.without(f"{WORK_FOLDER}/{name}" for name in read_brought(run_dir))
        case _:
            return TASK_PATHS

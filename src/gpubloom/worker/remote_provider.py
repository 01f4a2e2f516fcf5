"""The machine of one job at one service: its row, its key, and the service's words about it.

What a job takes along to another machine, beside its run directory: our own package, others by name.

From a job to a machine that runs it: money, luggage, bucket, service. Each may have to be waited for.

A rented machine as a provider of one attempt of one job: what the follower of any job asks for.

Calls to the bucket and to the service can take minutes, and the follower has a lease to keep: they happen in
a task of their own, and what the follower is told is always what is known by now. The run directory is here
(the receiver applies what arrives), so everything else reads it as ever.

Silence proves nothing while the bucket is away. A machine is given back before its attempt counts as over.
"""

import asyncio
import hashlib
import re
import sys
import time
import zipfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from uuid import UUID, uuid4

import structlog
from sqlalchemy import select

import gpubloom
from gpubloom.agent import ExitRecord, JobSpec
from gpubloom.providers import registry
from gpubloom.providers.base import AgentStatus, GracePeriod, ProviderError, Reservation
from gpubloom.providers.cloud import CloudProvider, Fault, Instance, Launch
from gpubloom.providers.skypilot.task import region_of
from gpubloom.scripts.task import WORK_FOLDER
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.files import read_brought
from gpubloom.server.jobs.lease import LeaseLost, holding
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.rentals.credentials import find_sealed, open_provider
from gpubloom.server.rentals.keys import MachineKey
from gpubloom.server.rentals.tables import Rental
from gpubloom.server.settings import Settings
from gpubloom.storage import Arrival, Bundle, DamagedBatchError, Receiver, StorageError, Store, send_bundle
from gpubloom.storage.applying import ARRIVING, SCRIPT_PATHS, TRAINING_PATHS, AcceptedPaths
from gpubloom.storage.layout import JobLayout
from gpubloom.traincard import ControlFile
from gpubloom.worker.disk import fault_of
from gpubloom.worker.retries import PollIntervals, RetryingCalls
from gpubloom.worker.spending import Spending


class Renting:
    """One job under one lease. The service is called with its owner's credentials, read when needed."""

    def __init__(
        self, database: Database, settings: Settings, job: TrainingJob, token: UUID, installation: str
    ) -> None:
        self._database, self._settings = database, settings
        self._job, self._token, self._installation = job, token, installation
        self._provider: CloudProvider | None = None
        self._instance_id: str | None = None
        self.longest_seconds: float | None = None
        # Where files are made that go along with jobs.
        self.folder = settings.home / "packages"

    def key(self, attempt: int) -> str:
        return str(MachineKey(self._installation, self._job.id, attempt))

    async def find(self, attempt: int) -> Rental | None:
        """What was rented for an attempt, or asked for."""
        async with self._database.read() as session:
            rental: Rental | None = await session.scalar(
                select(Rental).where(Rental.key == self.key(attempt))
            )
        if rental is not None:
            self._instance_id = rental.instance_id
        return rental

    async def begin(self, attempt: int) -> Rental:
        """Written before a service is asked: whatever is lost afterwards, somebody knows what to look for."""
        offer = self._job.offer or {}
        async with self._database.write() as session:
            job = await holding(session, self._job.id, self._token)
            rental = Rental(
                user_id=job.user_id,
                project_id=job.project_id,
                job_id=job.id,
                job_name=job.name,
                attempt=attempt,
                provider=job.target,
                key=self.key(attempt),
                gpu=str(offer["gpu"]),
                gpus=int(offer["gpus"]),
                region=offer.get("region"),
                kind=offer["kind"],
                hourly=float(offer["hourly"]),
                billing=offer.get("billing") or "second",
                minimum_seconds=float(offer.get("minimum_seconds") or 0.0),
            )
            session.add(rental)
            await session.flush()
            return rental

    async def submit(self, launch: Launch) -> Instance:
        provider = await self._open()
        if (reason := provider.capabilities.why_not(launch)) is not None:
            raise Fault("refused", reason)
        try:
            instance = await provider.submit(launch)
        except Fault as fault:
            await self._drop_if_refused(fault)
            raise
        self._instance_id = instance.id
        return instance

    def unseen(self, attempt: int) -> Instance:
        """A machine of which only its agent has told."""
        return Instance("", self.key(attempt), "running", "The service did not answer; the agent did.")

    async def status(self, attempt: int) -> Instance:
        provider = await self._open()
        try:
            if self._instance_id is None and not await self._find(provider, attempt):
                return Instance("", self.key(attempt), "ended", "The service does not know it any more.")
            assert self._instance_id is not None
            return await provider.status(self._instance_id)
        except Fault as fault:
            await self._drop_if_refused(fault)
            raise

    async def terminate(self, attempt: int) -> Instance | None:
        """End the machine, whether its id is known or only its key; None: there is none."""
        provider = await self._open()
        try:
            if self._instance_id is None and not await self._find(provider, attempt):
                return None
            assert self._instance_id is not None
            await provider.cancel(self._instance_id)
            return await provider.status(self._instance_id)
        except Fault as fault:
            await self._drop_if_refused(fault)
            raise

    async def _find(self, provider: CloudProvider, attempt: int) -> bool:
        found = [instance for instance in await provider.list() if instance.key == self.key(attempt)]
        if found:
            self._instance_id = found[0].id
        return bool(found)

    async def prepare(self) -> None:
        """Learn how long a machine may live there. ProviderError: there is no such service."""
        # In a thread: a service's own library may take a while to import.
        kind = await asyncio.to_thread(registry.provider_spec, self._job.target)
        self.longest_seconds = kind.capabilities.longest_seconds

    async def close(self) -> None:
        if self._provider is not None:
            provider, self._provider = self._provider, None
            await provider.close()

    async def _open(self) -> CloudProvider:
        if self._provider is None:
            async with self._database.read() as session:
                sealed = await find_sealed(session, self._job.user_id, self._job.target)
            self._provider = open_provider(self._settings, self._job.user_id, self._job.target, sealed)
        return self._provider

    async def _drop_if_refused(self, fault: Fault) -> None:
        """Its owner may enter new credentials: they are read again for the next call."""
        if fault.kind == "bad_credentials":
            await self.close()


# What no training process imports: the service tower, but for what both towers stand on.
_STAY_HERE = {"cli", "offers", "providers", "scripts", "server", "storage", "worker", "__pycache__"}
# The oldest moment a zip file can name: the same sources give the same bytes, which are stored once.
_TIME = (1980, 1, 1, 0, 0, 0)
_OPTIONAL = re.compile(r"""(?P<what>[^;]+?)\s*;.*\bextra\s*==\s*['"](?P<extra>[\w-]+)['"]""")
_OWN = re.compile(r"gpubloom\[(?P<extras>[\w,-]+)\]")


@dataclass(frozen=True)
class PackageDependencies:
    """`package`: gpubloom as one file, for a job that imports it. `packages`: what pip installs there."""

    package: Path | None
    packages: tuple[str, ...]


def package_dependencies(job: TrainingJob, folder: Path) -> PackageDependencies:
    """What this job needs; files are made in `folder`. ValueError: jobs of its kind do not travel."""
    if job.kind == "script":
        return PackageDependencies(None, tuple(job.config.get("packages") or ()))
    if job.kind == "train":
        backend = job.config.get("backend")
        extra = "trl" if backend in {"trl", "unsloth"} else "train"
        own = [name for name in ("bitsandbytes", "unsloth") if _is_needed(name, job)]
        return PackageDependencies(build_package(folder), (*requirements_of(extra), *own))
    raise ValueError(f"Jobs of the kind {job.kind} run where their files lie; they cannot be sent elsewhere.")


def _is_needed(name: str, job: TrainingJob) -> bool:
    backend = job.config.get("backend")
    if name == "unsloth":
        return backend == "unsloth"
    return backend in {"trl", "unsloth"} and job.config.get("method") == "qlora"


def requirements_of(extra: str) -> tuple[str, ...]:
    """What pip installs for one of our extras; our own package comes with the job."""
    try:
        declared = requires("gpubloom") or []
    except PackageNotFoundError:
        raise ValueError("gpubloom is not installed as a package, so nobody knows what it needs.") from None
    wanted, seen, found = [extra], set(), []
    while wanted:
        name = wanted.pop(0)
        seen.add(name)
        for line in declared:
            match = _OPTIONAL.match(line)
            if match is None or match["extra"] != name:
                continue
            own = _OWN.match(match["what"])
            if own is None:
                found.append(match["what"].strip())
            else:
                wanted += [each for each in own["extras"].split(",") if each not in seen]
    return tuple(dict.fromkeys(found))


def build_package(folder: Path) -> Path:
    """gpubloom as one file that is unpacked where it is needed; built when it is not there yet."""
    root = Path(gpubloom.__path__[0])
    files = [file for part in root.iterdir() if part.name not in _STAY_HERE for file in _files_of(part)]
    kept = {f"gpubloom/{file.relative_to(root).as_posix()}": file.read_bytes() for file in sorted(files)}
    digest = hashlib.sha256()
    for name, content in kept.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    target = folder / f"gpubloom-{gpubloom.__version__}-{digest.hexdigest()[:16]}.zip"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # Several jobs may need it at once.
        temporary = target.with_name(f".{target.name}.{uuid4()}.tmp")
        with zipfile.ZipFile(temporary, "w") as archive:
            for name, content in kept.items():
                archive.writestr(zipfile.ZipInfo(name, _TIME), content)
        temporary.replace(target)
    return target


def _files_of(part: Path) -> list[Path]:
    found = [part] if part.is_file() else part.rglob("*")
    return [file for file in found if file.is_file() and "__pycache__" not in file.parts]


log = structlog.get_logger("bloom.worker")


class NotStarted(Exception):
    """No machine can be had, and waiting will not help; `kind` is the fault's, the text a sentence."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


class Launcher:
    """One attempt that has no machine yet. `was_asked`: a service may have started one."""

    def __init__(
        self,
        job: TrainingJob,
        run_dir: Path,
        store: Store,
        renting: Renting,
        spending: Spending,
        poll_intervals: PollIntervals,
        calls: RetryingCalls,
        is_unwanted: Callable[[], bool],
        has_spoken: Callable[[], Awaitable[bool]],
    ) -> None:
        self._job, self._run_dir, self._store = job, run_dir, store
        self._renting, self._spending, self._poll_intervals, self._calls = (
            renting,
            spending,
            poll_intervals,
            calls,
        )
        self._is_unwanted, self._has_spoken = is_unwanted, has_spoken
        self.was_asked = False
        self.log = log.bind(job=str(job.id), provider=job.target)

    async def rent(self, spec: JobSpec, rental_id: UUID) -> Instance | None:
        """The machine; None: the money is spent, or nobody wants it any more. NotStarted: there is none."""
        allowance = await self._calls.insist(lambda: self._spending.allow(rental_id))
        if allowance.decision.action == "stop":
            return None
        try:
            dependencies = await self._package()
            launch = None if dependencies is None else await self._send(spec, dependencies, allowance.seconds)
            return None if launch is None else await self._submit(launch)
        except (ValueError, OSError) as problem:
            raise await self._refused(rental_id, "not_started", str(problem)) from problem
        except Fault as fault:
            raise await self._refused(rental_id, fault.kind, str(fault)) from fault
        except ProviderError as problem:
            raise await self._refused(rental_id, "refused", str(problem)) from problem

    async def _refused(self, rental_id: UUID, kind: str, sentence: str) -> NotStarted:
        await self._calls.insist(lambda: self._spending.end(rental_id, sentence))
        return NotStarted(kind, sentence)

    async def _package(self) -> PackageDependencies | None:
        """What the job needs there; None: nobody wants it any more."""
        pause = self._poll_intervals.first_pause
        while not self._is_unwanted():
            try:
                return await self._calls.in_thread(
                    lambda: package_dependencies(self._job, self._renting.folder)
                )
            except OSError as problem:
                if (fault := fault_of(problem)) is None:
                    raise
                await self._wait(f"{fault.sentence} The job starts when the disk can be written.", pause)
                pause = min(pause * 2, self._poll_intervals.longest_pause)
        return None

    async def _send(
        self, spec: JobSpec, dependencies: PackageDependencies, affordable_seconds: float
    ) -> Launch | None:
        """Puts the job's files into the bucket."""
        offer = self._job.offer or {}
        time_limit = self._time_limit(affordable_seconds)
        spec = replace(spec, command=_remote_command(spec.command), time_limit_seconds=time_limit)
        bundle = Bundle(spec, self._run_dir, dependencies.package, timing=self._poll_intervals.agent)
        while not self._is_unwanted():
            try:
                sent = await self._calls.in_thread(lambda: send_bundle(self._store, bundle))
            except (StorageError, OSError) as problem:
                if isinstance(problem, OSError) and fault_of(problem) is None:
                    raise
                await self._wait(
                    f"The job's files cannot be stored now: {problem}", self._poll_intervals.first_pause
                )
                continue
            return Launch(
                key=self._renting.key(self._job.attempt),
                gpu=str(offer["gpu"]),
                gpus=int(offer["gpus"]),
                command=sent.command,
                start_address=sent.address,
                region=self._region(),
                spot=offer.get("kind") == "spot",
                disk_gb=int(offer.get("disk_gb") or 50),
                packages=dependencies.packages,
                longest_seconds=self._longest_life(time_limit),
            )
        return None

    def _region(self) -> str | None:
        offer = self._job.offer or {}
        if self._job.target == "skypilot":
            return region_of(str(offer["provider"]), offer.get("region"))
        return offer.get("region")

    def _time_limit(self, affordable_seconds: float) -> float | None:
        """The agent's own: it stops there even when nobody is left to tell it."""
        limits = [affordable_seconds]
        if self._renting.longest_seconds is not None:
            limits.append(longest_run(self._renting.longest_seconds, self._poll_intervals))
        shortest = min(limits)
        return None if shortest == float("inf") else max(shortest, 1.0)

    def _longest_life(self, time_limit: float | None) -> float | None:
        """The machine's own: long after the agent has stopped and delivered, should nobody end it."""
        lives = [] if self._renting.longest_seconds is None else [self._renting.longest_seconds]
        if time_limit is not None:
            lives.append(time_limit + self._poll_intervals.last_resort)
        return min(lives, default=None)

    async def _submit(self, launch: Launch) -> Instance | None:
        pause = self._poll_intervals.first_pause
        while not self._is_unwanted():
            self.was_asked = True
            try:
                return await self._renting.submit(launch)
            except Fault as fault:
                if not fault.passes and not fault.uncertain:
                    raise
                seconds = max(pause, fault.retry_after_seconds or 0.0)
                await self._wait(f"{fault} It is tried again by itself.", seconds)
                if fault.uncertain and await self._has_spoken():
                    # Some services forget what has ended: asked again, they would start a second one.
                    return self._renting.unseen(self._job.attempt)
                pause = min(pause * 2, self._poll_intervals.longest_pause)
        return None

    async def _wait(self, sentence: str, seconds: float) -> None:
        await self._calls.insist(lambda: self._spending.wait(sentence))
        self.log.warning("no machine yet", reason=sentence)
        until = time.monotonic() + seconds
        for _ in range(1 + int(seconds)):
            if self._is_unwanted() or time.monotonic() >= until:
                return
            await asyncio.sleep(min(1.0, seconds))


def longest_run(longest_seconds: float, poll_intervals: PollIntervals) -> float:
    """How long a training may run on a machine that lives for so long."""
    return max(longest_seconds - poll_intervals.margin, longest_seconds / 2)


def _remote_command(command: tuple[str, ...]) -> tuple[str, ...]:
    """Interpreters have other paths there."""
    return ("python3", *command[1:]) if command[0] == sys.executable else command


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

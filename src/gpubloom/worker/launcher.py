"""Launch a job on a rented instance: check the budget, package the inputs, upload them, ask the provider.

Each step can fail for a while (disk full, bucket unreachable, no capacity) and is retried until the job is
cancelled. The rental row exists before the provider is asked, so a crash between the two leaves something for
the reconciler to find.
"""

import hashlib
import re
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any
from uuid import uuid4

import gpubloom
from gpubloom.agent import JobSpec
from gpubloom.agent.progress.imports import knows_traincard
from gpubloom.datasets.named import known
from gpubloom.datasets.remote_data import is_remote
from gpubloom.errors import InputError
from gpubloom.providers.base import ProviderError
from gpubloom.providers.cloud import Fault, Instance, Launch, Prefetch
from gpubloom.providers.skypilot.task import region_of
from gpubloom.scripts.task import script_task
from gpubloom.server.clock import now
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.secrets.service import SecretUnavailable
from gpubloom.storage import Bundle, SentBundle, SshStore, StorageError, StoreRefused, send_bundle
from gpubloom.traincard.retry import RetryPolicy, retry_async
from gpubloom.worker.disk import fault_of
from gpubloom.worker.failover import has_next_offer
from gpubloom.worker.remote_attempt import PollIntervals, RemoteAttempt

# The training process imports none of these packages.
_STAY_HERE = {
    "cli",
    "offers",
    "providers",
    "sandbox",
    "scripts",
    "server",
    "storage",
    "worker",
    "__pycache__",
}
# The oldest time that a zip file can hold: the same sources give the same bytes, which are stored once.
_TIME = (1980, 1, 1, 0, 0, 0)
_OPTIONAL = re.compile(r"""(?P<what>[^;]+?)\s*;.*\bextra\s*==\s*['"](?P<extra>[\w-]+)['"]""")
_OWN = re.compile(r"gpubloom\[(?P<extras>[\w,-]+)\]")
_IS_OWN = re.compile(r"gpubloom(?![\w.-])")
# A machine whose job ends while this server is off keeps the results and waits for the server.
_TIMING: dict[str, dict[str, float]] = {"server": {"deliver": 12 * 3600.0}}
# Beside gpubloom in its wheel; a script may import the Reporter from it.
_METAFLOW_NAMES = "metaflow_traincard"


class LaunchFailed(Exception):
    """No instance is available, and waiting will not help. `kind` is the kind of the fault."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


class LaunchCancelled(Exception):
    """The budget is spent, or the job was cancelled. `was_asked`: an instance may have been started."""

    def __init__(self, *, was_asked: bool) -> None:
        super().__init__("The launch was cancelled.")
        self.was_asked = was_asked


async def launch(attempt: RemoteAttempt, spec: JobSpec, is_cancelled: Callable[[], bool]) -> Instance:
    """Return the instance that was started for an attempt. Raises LaunchFailed or LaunchCancelled."""
    rental_id = attempt.instance.rental_id
    allowance = await attempt.spending.allow(rental_id)
    if allowance.decision.action == "stop":
        raise LaunchCancelled(was_asked=False)
    try:
        dependencies = await _package(attempt, spec, is_cancelled)
        request, renewed = await _upload(attempt, spec, dependencies, allowance.seconds, is_cancelled)
        return await _submit(attempt, request, renewed, is_cancelled)
    except (ValueError, OSError, ProviderError, SecretUnavailable, StoreRefused) as problem:
        kind = "refused" if isinstance(problem, ProviderError) else "not_started"
        kind = problem.code if isinstance(problem, SecretUnavailable | StoreRefused) else kind
        await attempt.spending.end(rental_id, str(problem))
        raise LaunchFailed(problem.kind if isinstance(problem, Fault) else kind, str(problem)) from problem


async def _package(
    attempt: RemoteAttempt, spec: JobSpec, is_cancelled: Callable[[], bool]
) -> "PackageDependencies":
    """What the job needs on the instance; waits while the disk here cannot be written."""

    async def package() -> PackageDependencies:
        if is_cancelled():
            raise LaunchCancelled(was_asked=False)
        return await attempt.in_thread(
            lambda: package_dependencies(attempt.job, spec, attempt.instance.package_folder)
        )

    async def wait(problem: Exception, pause: float) -> None:
        fault = fault_of(problem)
        assert fault is not None
        sentence = f"{fault.sentence} The job starts when the worker can write to the disk."
        await _wait(attempt, sentence, pause, is_cancelled)

    intervals = attempt.poll_intervals
    policy = RetryPolicy(intervals.first_pause, intervals.longest_pause)
    return await retry_async(package, policy, is_transient=_is_disk_fault, wait=wait)


def _is_disk_fault(problem: Exception) -> bool:
    return isinstance(problem, OSError) and fault_of(problem) is not None


async def _upload(
    attempt: RemoteAttempt,
    spec: JobSpec,
    dependencies: "PackageDependencies",
    affordable_seconds: float,
    is_cancelled: Callable[[], bool],
) -> tuple[Launch, Callable[[], Launch]]:
    """Upload the job's files to the store; returns what the provider is asked for, now and later."""
    job, intervals, longest_life = attempt.job, attempt.poll_intervals, attempt.instance.longest_seconds
    time_limit = _time_limit(affordable_seconds, longest_life, intervals)
    spec = replace(spec, command=_remote_command(spec.command), time_limit_seconds=time_limit)
    timing = {**_TIMING.get(attempt.instance.store_name, {}), **intervals.agent}
    bundle = Bundle(spec, attempt.run_dir, dependencies.package, timing=timing)

    async def send() -> SentBundle:
        if is_cancelled():
            raise LaunchCancelled(was_asked=False)
        return await attempt.in_thread(lambda: send_bundle(attempt.store, bundle))

    async def wait(problem: Exception, pause: float) -> None:
        await _wait(attempt, f"The job's files cannot be stored now: {problem}", pause, is_cancelled)

    sent = await retry_async(
        send,
        RetryPolicy(intervals.first_pause, intervals.first_pause),
        is_transient=lambda problem: _is_store_away(problem) or _is_disk_fault(problem),
        wait=wait,
    )
    offer = job.offer or {}
    secrets, prefetch = await attempt.instance.secrets(), prefetch_of(job)
    request = Launch(
        key=attempt.instance.key,
        gpu=str(offer["gpu"]),
        gpus=int(offer["gpus"]),
        command=sent.command,
        start_address=sent.address_with(secrets),
        report_address=sent.report_address,
        region=_region(job),
        spot=offer.get("kind") == "spot",
        disk_gb=int(offer.get("disk_gb") or 50),
        packages=dependencies.packages,
        prefetch=prefetch,
        # An image is built before the job starts: only downloads need something there.
        secrets={name: secrets[name] for name in ("HF_TOKEN",) if name in secrets and prefetch},
        longest_seconds=_longest_life(time_limit, longest_life, intervals),
        ssh=attempt.store.keys.access if isinstance(attempt.store, SshStore) else None,
    )
    return request, partial(_renewed, request, sent, secrets)


def _renewed(request: Launch, sent: SentBundle, secrets: Mapping[str, str]) -> Launch:
    """The same request with addresses that are signed again. StorageError: the store is away."""
    if sent.renew is None:
        return request
    again = sent.renew()
    return replace(
        request,
        command=again.command,
        start_address=again.address_with(secrets),
        report_address=again.report_address,
    )


async def _submit(
    attempt: RemoteAttempt,
    request: Launch,
    renewed: Callable[[], Launch],
    is_cancelled: Callable[[], bool],
) -> Instance:
    """Ask the provider until it has an instance. Each try has new addresses: capacity may take days."""
    was_asked = is_uncertain = False

    async def submit() -> Instance:
        nonlocal was_asked, is_uncertain
        if is_uncertain and await attempt.has_reported():
            # Some providers forget what has ended: asked again, they would start a second instance.
            return attempt.instance.unseen()
        if is_cancelled():
            raise LaunchCancelled(was_asked=was_asked)
        if not await attempt.spending.check_rate(attempt.instance.rental_id, attempt.prices):
            raise LaunchCancelled(was_asked=was_asked)
        current = await attempt.in_thread(renewed) if was_asked else request
        was_asked, is_uncertain = True, False
        return await attempt.instance.submit(current)

    async def wait(problem: Exception, pause: float) -> None:
        nonlocal is_uncertain
        seconds = pause
        if isinstance(problem, Fault):
            is_uncertain = problem.uncertain
            if problem.kind == "no_capacity" and not is_uncertain and has_next_offer(attempt.job, now()):
                await attempt.spending.end(attempt.instance.rental_id, str(problem))
                raise LaunchFailed("no_capacity", str(problem)) from problem
            seconds = max(pause, problem.retry_after_seconds or 0.0)
        await _wait(attempt, f"{problem} The worker retries automatically.", seconds, is_cancelled)

    intervals = attempt.poll_intervals
    return await retry_async(
        submit,
        RetryPolicy(intervals.first_pause, intervals.longest_pause),
        is_transient=_may_pass,
        wait=wait,
    )


def _may_pass(problem: Exception) -> bool:
    if isinstance(problem, Fault):
        return problem.passes or problem.uncertain
    return _is_store_away(problem)


def _is_store_away(problem: Exception) -> bool:
    return isinstance(problem, StorageError) and not isinstance(problem, StoreRefused)


async def _wait(
    attempt: RemoteAttempt, sentence: str, seconds: float, is_cancelled: Callable[[], bool]
) -> None:
    """Store why the job is waiting, and pause. The pause ends early when the job is cancelled."""
    await attempt.spending.wait(sentence)
    attempt.log.warning("no instance yet", reason=sentence)
    clock = attempt.clock
    until = clock.now() + seconds
    for _ in range(1 + int(seconds)):
        if is_cancelled() or clock.now() >= until:
            return
        await clock.sleep(min(1.0, seconds))


def _region(job: TrainingJob) -> str | None:
    offer = job.offer or {}
    if job.target == "skypilot":
        return region_of(str(offer["provider"]), offer.get("region"))
    return offer.get("region")


def _time_limit(
    affordable_seconds: float, longest_life: float | None, intervals: PollIntervals
) -> float | None:
    """The agent's own time limit. It also holds when no worker is left."""
    limits = [affordable_seconds]
    if longest_life is not None:
        limits.append(longest_run(longest_life, intervals))
    shortest = min(limits)
    return None if shortest == float("inf") else max(shortest, 1.0)


def _longest_life(
    time_limit: float | None, longest_life: float | None, intervals: PollIntervals
) -> float | None:
    """When the instance terminates itself if no worker does: long after the agent has stopped."""
    lives = [] if longest_life is None else [longest_life]
    if time_limit is not None:
        lives.append(time_limit + intervals.last_resort)
    return min(lives, default=None)


def longest_run(longest_life: float, intervals: PollIntervals) -> float:
    """How long a training may run on an instance that lives for so long."""
    return max(longest_life - intervals.margin, longest_life / 2)


def _remote_command(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command with the interpreter of the instance, which has another path there."""
    return ("python3", *command[1:]) if command[0] == sys.executable else command


def prefetch_of(job: TrainingJob) -> Prefetch:
    """What a script downloads first. A training brings its model and data from here."""
    if job.kind != "script":
        return Prefetch()
    task = script_task(job.config)
    named = [file for name in task.datasets if not is_remote(name) for file in known(name).files]
    return Prefetch(
        models=task.hub_models,
        datasets=task.hub_datasets,
        # What is unpacked here is another file than the one at its address.
        addresses=tuple(file.address for file in named if file.packed is None),
    )


@dataclass(frozen=True)
class PackageDependencies:
    """`package`: gpubloom as one file, for a job that imports it. `packages`: what pip installs there."""

    package: Path | None
    packages: tuple[str, ...]


def package_dependencies(job: TrainingJob, spec: JobSpec, folder: Path) -> PackageDependencies:
    """What this job needs; files are made in `folder`. ValueError: jobs of its kind only run here."""
    if job.kind == "script":
        return _script_dependencies(tuple(job.config.get("packages") or ()), spec, folder)
    if job.kind == "train":
        backend = job.config.get("backend")
        extra = "trl" if backend in {"trl", "unsloth"} else "train"
        own = [name for name in ("bitsandbytes", "unsloth") if _is_needed(name, job)]
        if any(str(path).startswith(("s3://", "gs://")) for path in _data_paths(job)):
            own += requirements_of("storage")
        return PackageDependencies(build_package(folder), (*requirements_of(extra), *own))
    raise InputError(
        "cannot_move",
        f"Jobs of kind {job.kind} run only where their files are. They cannot run on a rented machine.",
    )


def _data_paths(job: TrainingJob) -> list[Any]:
    data = job.config.get("data") or {}
    return [data.get("train_path"), data.get("eval_path")]


def _script_dependencies(packages: tuple[str, ...], spec: JobSpec, folder: Path) -> PackageDependencies:
    """The packages of a script. One that reports through TrainCard gets the gpubloom of this server with it,
    whose run directories this server reads; pip would look for another one."""
    own = [name for name in packages if _IS_OWN.match(name)]
    if not own and not knows_traincard(spec):
        return PackageDependencies(None, packages)
    extras = [extra for name in own if (found := _OWN.match(name)) for extra in found["extras"].split(",")]
    needed = [each for extra in extras for each in requirements_of(extra)]
    others = [name for name in packages if name not in own]
    return PackageDependencies(build_package(folder), tuple(dict.fromkeys((*others, *needed))))


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
        raise InputError(
            "not_installed",
            "gpubloom is not installed as a package, so its dependencies are unknown. Install it with pip.",
        ) from None
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
    files += _files_of(root.with_name(_METAFLOW_NAMES))
    kept = {file.relative_to(root.parent).as_posix(): file.read_bytes() for file in sorted(files)}
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

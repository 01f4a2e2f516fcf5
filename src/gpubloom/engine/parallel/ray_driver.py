"""Trains a run on the nodes of a Ray cluster: `python -m gpubloom.engine.parallel.ray_driver train.py …`.

Ray Train finds room for the processes and tells each its rank; they join as under torchrun. When a node or
the head is lost, this process ends so that its launcher starts it again, and the run resumes.
"""

import argparse
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import ray
from ray.train.backend import Backend
from ray.train.torch import TorchConfig
from ray.train.v2.api.config import FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.torch.torch_trainer import TorchTrainer

from gpubloom.engine.parallel.rank_env import LOST, end_with, write_exit_message
from gpubloom.engine.parallel.ray_worker import REFUSED, ProcessEnded, ProcessSpec, work
from gpubloom.engine.parallel.rendezvous import join_seconds
from gpubloom.errors import InputError, code_of, error_line
from gpubloom.plan import TrainConfig
from gpubloom.traincard import ControlFile

# A head that is started again takes its time; so does a cluster that grows.
_HEAD_SECONDS = 600.0
_PAUSE_SECONDS = 3.0
# Passed on to the processes: what the launcher told this one.
_PASSED_ON = ("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "BLOOM_RESTART_REASON")
_PASSED_ON_IF_SET = ("BLOOM_ATTEMPT", "BLOOM_RUN_DIR", "BLOOM_JOIN_SECONDS", "BLOOM_TRAINCARD")


class RankEnvBackend(Backend):
    """Gives every worker the variables of torchrun, and leaves joining to the process that it starts."""

    share_cuda_visible_devices = True

    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        from ray.train._internal.utils import get_address_and_port
        from ray.train.torch.config import _set_torch_distributed_env_vars

        address, port = worker_group.execute_single(0, get_address_and_port)
        worker_group.execute(_set_rendezvous, address, port)
        worker_group.execute(_set_torch_distributed_env_vars)

    def on_training_start(self, worker_group: Any, backend_config: Any) -> None: ...

    def on_shutdown(self, worker_group: Any, backend_config: Any) -> None: ...


def _set_rendezvous(address: str, port: int) -> None:
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = address, str(port)


@dataclass
class RankEnvConfig(TorchConfig):
    """TorchTrainer without a process group of its own."""

    @property
    def backend_cls(self) -> type[Backend]:
        return RankEnvBackend


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes as those of a process of a run: 0, 1, 2 for refused, and one for "start again"."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    if launcher := os.environ.get("BLOOM_LAUNCHER_PID"):
        end_with(int(launcher))
    home = options.script.parent
    config = TrainConfig.read(home / "config.json")
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    _pause_when_asked(home)
    try:
        seconds = max(join_seconds(os.environ), _HEAD_SECONDS if restarted else 0.0)
        connect(os.environ, seconds=seconds)
        on_gpu = find_room(config, seconds=seconds)
    except ValueError as problem:
        return _end(error_line(code_of(problem), str(problem)), 1 if restarted else REFUSED)
    order = ProcessSpec(options.script, tuple(options.arguments), passed_on(os.environ))
    return _train(order, config.said_processes, on_gpu=on_gpu)


def connect(environment: Mapping[str, str], *, seconds: float) -> None:
    """Joins the cluster at RAY_ADDRESS; ValueError when none answers for so long."""
    address = environment.get("RAY_ADDRESS") or "auto"
    if address.startswith("http"):
        raise InputError(
            "invalid_address",
            f"RAY_ADDRESS is {address}, which is the address of the dashboard: set it to the address of the "
            "cluster, such as head:6379.",
        )
    deadline = time.monotonic() + seconds
    while (problem := _why_not_connected(address)) is not None:
        # Nobody's cluster will appear by itself where none was named.
        if time.monotonic() > deadline or address == "auto":
            waited = "" if address == "auto" else f" within {seconds:.0f} s"
            raise InputError(
                "ray_unavailable",
                f"No Ray cluster responds at {address}{waited}: start a cluster (ray start --head) or set "
                f"RAY_ADDRESS. {problem}",
            )
        time.sleep(_PAUSE_SECONDS)


def _why_not_connected(address: str) -> str | None:
    where = urlsplit(address if "://" in address else f"//{address}")
    try:
        if where.hostname and where.port:
            # Ray's own attempt may end this process when nobody listens there.
            socket.create_connection((where.hostname, where.port), _PAUSE_SECONDS).close()
        ray.init(address=address, configure_logging=False, log_to_driver=False)
    except (OSError, RuntimeError, ValueError) as problem:
        ray.shutdown()
        return f"{type(problem).__name__}: {(str(problem).splitlines() or [''])[0]}"
    return None


def find_room(config: TrainConfig, *, seconds: float) -> bool:
    """Waits until the cluster has a place for every process; whether these are GPUs."""
    wanted, deadline = config.said_processes, time.monotonic() + seconds
    while True:
        there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        gpus, cpus = int(there.get("GPU", 0)), int(there.get("CPU", 0))
        if config.device != "cpu" and gpus >= wanted:
            return True
        if not config.device.startswith("cuda") and gpus == 0 and cpus >= wanted:
            return False
        if time.monotonic() > deadline:
            kind, room = ("GPU", gpus) if config.device.startswith("cuda") or gpus else ("CPU core", cpus)
            raise InputError(
                "ray_without_room",
                f"The Ray cluster has {room} {kind}{'' if room == 1 else 's'} for {wanted} processes, and no "
                f"more were added within {seconds:.0f} s: add nodes, or ask for fewer processes.",
            )
        time.sleep(_PAUSE_SECONDS)


def passed_on(environment: Mapping[str, str]) -> dict[str, str]:
    told = {name: environment.get(name, "") for name in _PASSED_ON}
    return told | {name: environment[name] for name in _PASSED_ON_IF_SET if name in environment}


def _train(order: ProcessSpec, processes: int, *, on_gpu: bool) -> int:
    trainer = TorchTrainer(
        partial(work, order),
        torch_config=RankEnvConfig(),
        scaling_config=ScalingConfig(
            num_workers=processes,
            use_gpu=on_gpu,
            resources_per_worker={"CPU": 1, **({"GPU": 1} if on_gpu else {})},
            placement_strategy="SPREAD",
        ),
        run_config=RunConfig(
            name=order.script.parent.name,
            storage_path=str(order.script.parent / ".ray"),
            # The launcher alone decides about restarts, by the checkpoints that were reached.
            failure_config=FailureConfig(
                max_failures=0, controller_failure_limit=0, max_preemption_failures=0
            ),
        ),
    )
    try:
        trainer.fit()
    except Exception as problem:  # noqa: BLE001 - whatever Ray raises, a lost node looks like any of it
        return judge(problem)
    return 0


def judge(problem: BaseException) -> int:
    """A process that refused, or failed by an error of its own, ends the run; all else is tried again."""
    ended = [found for found in _causes(problem) if isinstance(found, ProcessEnded)]
    for refused in (found for found in ended if found.code == REFUSED):
        sentence = (
            f"Rank {refused.rank} rejected the config or the data: see its output in "
            f"logs/rank-{refused.rank}.log."
        )
        unsaid = error_line("rank_failed", sentence)
        return _end(refused.words or unsaid, REFUSED)
    for failed in (found for found in ended if found.code > 0 and found.code != LOST):
        words = failed.words or f"see its output in logs/rank-{failed.rank}.log."
        return _end(f"Rank {failed.rank} failed: {words}", 1)
    if ended:
        who = min(ended, key=lambda found: found.code)
        lost = "lost the connection to another process"
        how = f"was terminated by signal {-who.code}" if who.code < 0 else lost
        return _end(f"Rank {who.rank} {how} on the Ray cluster.", LOST)
    first = (str(problem).splitlines() or [""])[0]
    return _end(f"A node of the Ray cluster was lost ({type(problem).__name__}: {first}).", LOST)


def _causes(problem: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [problem]
    while waiting:
        one = waiting.pop()
        if one is None or one in found:
            continue
        found.append(one)
        failures = getattr(one, "worker_failures", None)
        waiting += [*(failures.values() if isinstance(failures, dict) else ())]
        waiting += [getattr(one, "cause", None), getattr(one, "_base_exc", None), one.__cause__]
    return found


def _pause_when_asked(run_dir: Path) -> None:
    """Signals reach this machine only; the run directory reaches the leader wherever it is."""

    def pause(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            ControlFile(run_dir).want("pause")

    signal.signal(signal.SIGINT, pause)
    signal.signal(signal.SIGTERM, pause)


def _end(sentence: str, code: int) -> int:
    write_exit_message(sentence, os.environ)
    if code != LOST:
        sys.stderr.write(f"{sentence}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())

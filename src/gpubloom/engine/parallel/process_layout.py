"""Crew: how many processes train a run on this machine, with how many threads each, and why."""

import os
from dataclasses import dataclass

import torch

from gpubloom.engine.hardware import uses_gpu
from gpubloom.engine.parallel.trial import fastest
from gpubloom.plan import TrainConfig, detect_hardware, processes_on


@dataclass(frozen=True)
class ProcessLayout:
    """`threads`: of each process; None leaves them as they are. `reason`: for the log, if it was a choice."""

    processes: int = 1
    threads: int | None = None
    reason: str | None = None


def choose_layout(config: TrainConfig) -> ProcessLayout:
    """What the config asks for, all GPUs, or what was measured to be fastest on this CPU."""
    if uses_gpu(config.device):
        there = detect_hardware()
        # Counted, not asked for their names: this process may only conduct, and needs no place on a GPU.
        there = there.model_copy(update={"gpus": there.gpus[: torch.cuda.device_count()]})
        processes = processes_on(there, config)
        chosen = config.processes is None or config.processes == "auto"
        if processes == 1 or not chosen:
            return ProcessLayout(processes)
        return ProcessLayout(processes, None, f"{processes} of {len(there.gpus)} GPUs, a process each")
    if config.processes == "auto":
        found = fastest(config, threads=torch.get_num_threads())
        return ProcessLayout(found.processes, found.threads, found.reason)
    processes = config.said_processes
    return ProcessLayout(processes, max(1, torch.get_num_threads() // processes) if processes > 1 else None)


def shared_out(config: TrainConfig, processes: int) -> TrainConfig:
    """The config as one of so many processes has it.

    ValueError where the config asks for another number of them.
    """
    if isinstance(config.processes, int) and config.processes != processes:
        raise ValueError(
            f"The config asks for {config.processes} process{'' if config.processes == 1 else 'es'}, but "
            f"WORLD_SIZE is {processes}: start that many, or set processes to {processes} or to null."
        )
    if processes > 1 and config.backend != "engine":
        raise ValueError(
            f"WORLD_SIZE is {processes}, but backend {config.backend} trains in one process here."
        )
    batch = config.batch_size
    if config.processes == "auto" and not uses_gpu(config.device):
        if batch % processes:
            raise ValueError(
                f"processes is auto, so {processes} processes share the {batch} rows of batch_size, which "
                f"cannot be divided by {processes}: choose another batch_size, or set processes."
            )
        batch //= processes
    return config.model_copy(update={"processes": processes, "batch_size": batch})


def limit_threads(processes_here: int) -> None:
    """No more threads than this process's share of the cores: they would only wait for each other."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(max(1, min(torch.get_num_threads(), cores // processes_here)))

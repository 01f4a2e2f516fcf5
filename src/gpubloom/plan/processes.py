"""How many processes train a run on a machine, and what each of them has of it."""

from gpubloom.plan.config import TrainConfig
from gpubloom.plan.decoder import DecoderShape
from gpubloom.plan.hardware import Hardware
from gpubloom.plan.planner import Plan, plan
from gpubloom.plan.refusal import DoesNotFit


def processes_on(hardware: Hardware, config: TrainConfig, *, shape: DecoderShape | None = None) -> int:
    """One for each GPU unless somebody said otherwise; one on a CPU, where only a measurement knows better.

    Of a model that fits neither as copies nor divided among them there are fewer. ValueError when more GPUs
    were asked for than there are.
    """
    if config.cluster is not None:
        # Its nodes are not this machine; each is taken to be like it.
        return config.said_processes
    gpus = 0 if config.device == "cpu" else len(hardware.gpus)
    if isinstance(config.processes, int):
        if gpus and config.processes > gpus:
            raise ValueError(
                f"processes is {config.processes}, but {hardware.name} has {gpus} "
                f"GPU{'' if gpus == 1 else 's'}: each process needs one of its own."
            )
        return config.processes
    if gpus < 2 or ":" in config.device or config.backend != "engine":
        return 1
    for count in range(gpus, 1, -1):
        try:
            asked = config.model_copy(update={"processes": count})
            plan(asked, share_of(hardware, count), shape=shape)
        except DoesNotFit:
            continue
        return count
    return 1


def plan_on(
    hardware: Hardware,
    config: TrainConfig,
    *,
    tokens_per_epoch: int | None = None,
    shape: DecoderShape | None = None,
) -> Plan:
    """The plan of a run with as many processes as it has on this machine; raises like `plan`."""
    processes = processes_on(hardware, config, shape=shape)
    if processes != config.said_processes:
        config = config.model_copy(update={"processes": processes})
    return plan(
        config,
        share_of(hardware, 1 if config.cluster else processes),
        tokens_per_epoch=tokens_per_epoch,
        shape=shape,
    )


def share_of(hardware: Hardware, processes: int) -> Hardware:
    """What one of several processes on a machine may take of its memory and cores."""
    if processes == 1:
        return hardware
    return hardware.model_copy(
        update={
            "host_memory_bytes": hardware.host_memory_bytes // processes,
            "cpu_cores": max(1, hardware.cpu_cores // processes),
        }
    )

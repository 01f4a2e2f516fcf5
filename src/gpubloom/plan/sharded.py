"""A model that is sharded among devices (the sharded executor): what each holds, and how long a step takes.

Every device holds an equal part of masters, gradients and moments; a layer's weights are gathered for its
turn, and its gradient is given back in parts. Layers keep their activations, or are computed again.
"""

from collections.abc import Iterator

from gpubloom.plan import costs
from gpubloom.plan.config import TrainConfig
from gpubloom.plan.memory import Bytes, activation_bytes, overhead_bytes, residency_of
from gpubloom.plan.placement import BlockPlacement, Placement
from gpubloom.plan.request import PlanRequest
from gpubloom.plan.search import CHUNKS
from gpubloom.plan.timing import Lanes, update_bytes
from gpubloom.plan.workload import Timed

# The layer that computes, and the next one on its way.
_GATHERED_LAYERS = 2


def may_shard(config: TrainConfig) -> bool:
    """Whether dividing comes into question: asked for, or left to the plan and there are several to share."""
    if config.executor == "auto":
        fits = config.method != "qlora" and config.memory.mode != "stream" and config.backend == "engine"
        return (
            fits
            and (config.optimizer.name, config.optimizer.state) == ("adamw", "fp32")
            and config.said_processes > 1
        )
    return config.executor == "sharded"


def search_sharded(asked: PlanRequest) -> Placement | None:
    """The placement that keeps most activations among those that fit on every device."""
    found = [placement for placement in _candidates(asked) if _fits(asked, placement)]
    return min(found, key=lambda placement: _seconds(asked, placement), default=None)


def least_sharded(asked: PlanRequest) -> tuple[Bytes, Bytes]:
    """The least that every device would have to hold."""
    return sharded_bytes(asked, _placement(asked, 0, CHUNKS[-1] if asked.timed.work.on_gpu else CHUNKS[0]))


def sharded_bytes(asked: PlanRequest, placement: Placement) -> tuple[Bytes, Bytes]:
    """Peak on each device, and in host memory beside it."""
    timed, devices = asked.timed, asked.config.said_processes
    work, sums = timed.work, timed.sums
    c = work.compute_bytes
    trained = sum(work.trained) + (work.ends if work.full else 0)
    part = -(-trained // devices)
    frozen = 0 if work.full else -(-(sum(work.weights) + c * work.ends) // devices)
    layer = sums.largest_weights + (0 if work.full else c * sums.largest_trained)
    # On its way out a gradient exists whole, in the precision of computing and as the sum that is divided.
    leaving = (c + 4) * (sums.largest_trained + (work.ends if work.full else 0))
    on_device = Bytes(
        weights=4 * part + frozen + _GATHERED_LAYERS * layer + c * work.ends,
        gradients=4 * part + leaving,
        optimizer=8 * part,
        activations=activation_bytes(work, residency_of(placement, work, timed.recompute)),
        overhead=overhead_bytes(work),
    )
    return on_device, Bytes(overhead=costs.HOST_OVERHEAD_WITH_GPU_BYTES if work.on_gpu else 0)


def sharded_phases(asked: PlanRequest, placement: Placement) -> tuple[Lanes, ...]:
    """Forward, loss, backward, update; weights and gradients cross the link between devices meanwhile."""
    timed, devices = asked.timed, asked.config.said_processes
    work, sums, rates = timed.work, timed.sums, timed.rates
    at = residency_of(placement, work, timed.recompute)
    ends = work.compute_bytes * work.ends
    gathered = sum(work.weights) + ends
    trained = sum(work.trained) + (work.ends if work.full else 0)
    away = (devices - 1) / devices
    return (
        Lanes("forward", compute=sums.forward_total, link=_link(timed, gathered * away)),
        Lanes("loss", timed.loss),
        Lanes(
            "backward",
            compute=sums.backward_total + at.recompute_seconds,
            link=_link(timed, (gathered + 4 * trained) * away),
        ),
        Lanes(
            "update",
            update_bytes(work, trained, 8 * trained) / devices / rates.memory
            + (costs.STEP_SECONDS if work.on_gpu else 0.0),
        ),
    )


def sharded_sentence(asked: PlanRequest, placement: Placement) -> str:
    devices, layers = asked.config.said_processes, placement.layers
    what = "GPU" if asked.gpu is not None else "process"
    text = f"Sharded across {devices} {what}{'es' if what == 'process' else 's'}"
    if devices == 1:
        text = f"One {what} holds the whole model"
    kept = sum(layer.keep for layer in layers)
    again = (
        ""
        if kept == len(layers)
        else f"; {len(layers) - kept} of {len(layers)} layers recompute their activations"
    )
    gathered = "" if devices == 1 else "; the weights of a layer are gathered before it runs"
    return f"{text}{gathered}{again}."


def _candidates(asked: PlanRequest) -> Iterator[Placement]:
    work = asked.timed.work
    for chunk in CHUNKS if work.on_gpu else CHUNKS[:1]:
        for kept in range(work.count, -1, -1):
            placement = _placement(asked, kept, chunk)
            if kept == 0 or _fits(asked, placement):
                # More would be faster, fewer would be slower.
                yield placement
                break


def _placement(asked: PlanRequest, kept: int, chunk: int) -> Placement:
    work, ends = asked.timed.work, BlockPlacement()
    layers = tuple(BlockPlacement(keep=index >= work.count - kept) for index in range(work.count))
    return Placement(
        embedding=ends, layers=layers, head=None if work.shape.tied else ends, loss_chunk_tokens=chunk
    )


def _fits(asked: PlanRequest, placement: Placement) -> bool:
    device, host = sharded_bytes(asked, placement)
    if asked.gpu is None:
        return device.total + host.total <= asked.limits.host
    return device.total <= asked.limits.device and host.total <= asked.limits.host


def _seconds(asked: PlanRequest, placement: Placement) -> float:
    return sum(phase.seconds for phase in sharded_phases(asked, placement))


def _link(timed: Timed, moved: float) -> float:
    return moved / timed.rates.link_both if timed.work.on_gpu else 0.0

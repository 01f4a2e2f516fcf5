"""How long a step takes under a placement, phase by phase, and what it waits for.

Clipping by the global norm needs the whole backward pass first. So the host updates of a step overlap only
the forward pass of the next one, in forward order; gradients leave during the backward pass.
"""

import math
from typing import Literal, NamedTuple

from gpubloom.plan import costs
from gpubloom.plan.memory import PASSING_STATES, Residency
from gpubloom.plan.workload import Timed, Work

Limit = Literal[
    "the GPU", "the CPU", "the CPU-GPU link", "the host optimizer", "host memory bandwidth", "kernel launches"
]


SECOND_BACKWARD = "second backward"


class Lanes(NamedTuple):
    """Seconds that each part is busy within one phase; the phase lasts as long as the longest of them.

    `waiting`: when computing begins later or ends earlier than the phase.
    """

    name: str
    compute: float
    link: float = 0.0
    host: float = 0.0
    host_memory: float = 0.0
    waiting: float = 0.0

    @property
    def seconds(self) -> float:
        overlapped = _side_by_side(self.link, self.host, self.host_memory)
        slowdown = costs.OVERLAP_COST * min(self.compute, overlapped)
        return max(self.compute + self.waiting, overlapped) + slowdown


def phases(timed: Timed, at: Residency) -> tuple[Lanes, ...]:
    """Forward, loss, backward, for some layers backward again, update."""
    work, rates, sums = timed.work, timed.rates, timed.sums
    c, inputs = work.compute_bytes, at.recomputed * work.input_bytes if at.offload else 0
    on_host = at.host_state + (work.ends if work.full and at.ends_on_host else 0)
    ends_weights = c * work.ends if at.ends_on_host and work.full else 0
    casting = at.cast_weights / c * (4 + c) / rates.memory
    slow = costs.TWO_SLOTS_SLOWDOWN if at.slots < 3 and (at.streamed_weights or at.cast_weights) else 1.0

    # What is updated on its way through the device is there already: its weights need not be sent.
    linked = 4 * at.link_state + at.link_moments
    # The first of these states are sent before the backward pass is over.
    early = min(linked, PASSING_STATES * (4 * sums.largest_trained + sums.largest_moments))
    up = at.streamed_weights + at.filled_weights + linked - early - c * at.link_state + ends_weights
    # Copies for computing go home only where the backward pass sends them again.
    down = linked + (work.host_copy * at.link_state if at.streamed_weights else 0) + inputs
    adam = update_bytes(work, on_host, at.host_moments + (work.ends_moments if ends_weights else 0))
    adam -= _second_updates(timed, at)
    # Muon's products of layers on their way through the GPU take turns with those of the forward pass.
    muon = timed.muon / max(1, sums.trained[-1])
    shared = rates.link_during_updates / rates.link_both if adam else 1.0
    shared *= costs.STATE_LANE_USE if linked else 1.0
    forward = Lanes(
        "forward",
        compute=sums.forward_total + casting + muon * at.link_state,
        link=_link(timed, up, down) * slow / shared,
        host=adam / rates.host_adam,
        host_memory=_host_memory(timed, adam + up + down) if work.on_gpu else 0.0,
        # The first layer has nothing to hide behind: its update, then its weights.
        waiting=_first_layer(timed) if at.first_waits and work.on_gpu else 0.0,
    )
    up, down = at.streamed_weights + inputs + early, c * (on_host - at.twice_state)
    backward = Lanes(
        "backward",
        compute=sums.backward_total + at.recompute_seconds + casting,
        link=_link(timed, up, down) * slow,
        host_memory=_host_memory(timed, up + down) if work.on_gpu else 0.0,
        # The last gradient leaves when there is nothing left to compute.
        waiting=c * sums.largest_trained / rates.link_down if on_host and work.on_gpu else 0.0,
    )
    chunk, loss = 2_048, timed.loss
    while chunk > at.chunk and work.on_gpu:
        chunk, loss = chunk // 2, loss * costs.CHUNK_SLOWDOWN
    ends = work.full and not at.ends_on_host
    on_device = at.device_state + (work.ends if ends else 0)
    moved = update_bytes(work, on_device, at.device_moments + (work.ends_moments if ends else 0))
    # Where all is on the device, nobody waits for the norm.
    waiting = costs.STEP_SECONDS if work.on_gpu and (on_host or at.link_state) else 0.0
    update = moved / rates.memory + muon * at.device_state + waiting + rates.cpu_step
    again = (_second_backward(timed, at, slow),) if at.twice else ()
    return forward, Lanes("loss", loss), backward, *again, Lanes("update", update)


def _second_backward(timed: Timed, at: Residency, slow: float) -> Lanes:
    """The last layers again, whose gradients nobody kept; the host updates them at once."""
    work, sums, first = timed.work, timed.sums, timed.work.count - at.twice
    adam = _second_updates(timed, at)
    up = sums.weights[-1] - sums.weights[first] + (at.twice * work.input_bytes if at.offload else 0)
    down = work.compute_bytes * at.twice_state
    return Lanes(
        SECOND_BACKWARD,
        compute=sum(timed.backward[first:]) + sums.recompute[-1] - sums.recompute[first],
        link=_link(timed, up, down) * slow,
        host=adam / timed.rates.host_adam,
        host_memory=_host_memory(timed, adam + up + down),
    )


def _second_updates(timed: Timed, at: Residency) -> int:
    """Bytes that the updates of layers with gradients computed twice move."""
    moments = timed.sums.moments[-1] - timed.sums.moments[timed.work.count - at.twice]
    return update_bytes(timed.work, at.twice_state, moments)


def update_bytes(work: Work, elements: int, moments: int) -> int:
    """Read and written by updates: master, moments, gradient, compute copy; Adafactor reads more often."""
    passes = costs.ADAFACTOR_BYTES if work.optimizer == "adafactor" else 0
    return (costs.UPDATE_BYTES + passes) * elements + 2 * moments


def step_seconds(timed: Timed, at: Residency) -> float:
    # A list: the search asks this most, and a generator is a call for each phase more.
    return sum([phase.seconds for phase in phases(timed, at)])


def bottleneck(found: tuple[Lanes, ...], *, on_gpu: bool) -> Limit:
    """What a step waits for: the part that keeps the GPU waiting, if it waits a tenth of the step."""
    waited: dict[Limit, float] = {}
    for phase in found:
        parts: dict[Limit, float] = {
            "the host optimizer": phase.host,
            "the CPU-GPU link": phase.link,
            "host memory bandwidth": phase.host_memory,
        }
        longest = max(parts, key=lambda part: parts[part])
        overlapped = _side_by_side(*parts.values())
        waited[longest] = waited.get(longest, 0.0) + max(0.0, overlapped - phase.compute)
        if phase.name == "launches":
            waited["kernel launches"] = phase.seconds
    if sum(waited.values()) < 0.1 * sum(phase.seconds for phase in found):
        return "the GPU" if on_gpu else "the CPU"
    return max(waited, key=lambda part: waited[part])


def _link(timed: Timed, up: float, down: float) -> float:
    if not timed.work.on_gpu:
        return 0.0
    rates = timed.rates
    both = min(up, down)
    return both / rates.link_both + (up - both) / rates.link_up + (down - both) / rates.link_down


def _side_by_side(*parts: float) -> float:
    """Seconds of parts that run at once and wait for each other now and then.

    As long as the longest of them, and a little longer the more of them are nearly as long.
    """
    longest = max(parts)
    if not longest:
        return 0.0
    sharpness = costs.BOTTLENECK_SHARPNESS
    total: float = sum((part / longest) ** sharpness for part in parts)
    return longest * math.pow(total, 1 / sharpness)


def _host_memory(timed: Timed, moved: float) -> float:
    return moved / timed.rates.host_memory


def _first_layer(timed: Timed) -> float:
    moved = update_bytes(timed.work, timed.work.trained[0], timed.work.moments[0])
    return moved / timed.rates.host_adam + timed.work.weights[0] / timed.rates.link_up

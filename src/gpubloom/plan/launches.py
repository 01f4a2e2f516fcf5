"""How long the host needs to start the kernels of a step, and what a plan does about it.

Kernels of a small model are shorter than the time that starting them takes. Where everything is on the GPU,
such a step is recorded once as a CUDA graph and started with one call; and logits of more tokens at once mean
fewer, larger kernels.
"""

from gpubloom.plan import costs
from gpubloom.plan.memory import Residency, loss_bytes, residency_of
from gpubloom.plan.placement import BlockPlacement, Placement
from gpubloom.plan.request import PlanRequest
from gpubloom.plan.search import CHUNKS, fits
from gpubloom.plan.timing import Lanes, step_seconds
from gpubloom.plan.workload import Work

# Larger chunks of the loss than the search considers, and the part of the GPU's memory that they may take.
_LARGER_CHUNKS = (16_384, 8_192, 4_096)
_CHUNK_SHARE = 16


def launch_seconds(work: Work, at: Residency) -> float:
    """What the host is busy starting kernels in a step."""
    if not work.on_gpu:
        return 0.0
    if at.graph:
        return costs.LAUNCH_GRAPH_SECONDS
    layer = costs.LAUNCH_LAYER_SECONDS if work.compiled else costs.LAUNCH_EAGER_LAYER_SECONDS
    chunks = work.accumulation * -(-work.tokens // at.chunk)
    return (
        work.accumulation * work.count * layer
        + chunks * costs.LAUNCH_CHUNK_SECONDS
        + costs.LAUNCH_UPDATE_SECONDS
    )


def with_launches(phases: tuple[Lanes, ...], work: Work, at: Residency) -> tuple[Lanes, ...]:
    """A step's phases, and how long the GPU waits for its kernels to be started."""
    waiting = launch_seconds(work, at) - sum(phase.seconds for phase in phases)
    return (*phases, Lanes("launches", 0.0, waiting=waiting)) if waiting > 0 else phases


def with_few_launches(asked: PlanRequest, placement: Placement) -> Placement:
    """The placement with larger chunks and as a CUDA graph, where that helps and fits."""
    timed = asked.timed
    work = timed.work
    if not work.on_gpu:
        return placement
    # With frozen weights the head has no gradient to be summed over chunks.
    if work.full and placement.loss_chunk_tokens == CHUNKS[0]:
        for chunk in _LARGER_CHUNKS:
            larger = placement.model_copy(update={"loss_chunk_tokens": chunk})
            share = asked.limits.device // _CHUNK_SHARE
            if chunk < 2 * work.tokens and loss_bytes(work, chunk) <= share and _fits(asked, larger):
                placement = larger
                break
    if _could_be_recorded(asked, placement):
        at = residency_of(placement, work, timed.recompute)
        recorded = placement.model_copy(update={"cuda_graph": True})
        slow = launch_seconds(work, at) > costs.LAUNCHES_MATTER * step_seconds(timed, at)
        if slow and _fits(asked, recorded):
            return recorded
    return placement


def _could_be_recorded(asked: PlanRequest, placement: Placement) -> bool:
    """Every block rests on the GPU, and nothing is asked of the GPU before the step is over."""
    there = {BlockPlacement(), BlockPlacement(keep=True)}
    return (
        asked.precision != "fp16"
        and asked.config.said_processes == 1
        and not placement.offload_inputs
        and all(block in there for block in placement.blocks())
    )


def _fits(asked: PlanRequest, placement: Placement) -> bool:
    return fits(asked.timed, residency_of(placement, asked.timed.work, asked.timed.recompute), asked.limits)

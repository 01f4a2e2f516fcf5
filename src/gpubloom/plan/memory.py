"""How much memory of which kind a placement takes, on the GPU and on the host.

The facts are the block executor's; docs/planning.md lists them.
"""

from typing import NamedTuple

from gpubloom.plan import costs
from gpubloom.plan.placement import Placement
from gpubloom.plan.workload import Sums, Work

# Tokens whose logits an evaluation holds at the same time; fewer beside a recorded step, whose memory is not
# free between steps.
EVALUATION_TOKENS = 2_048
RECORDED_EVALUATION_TOKENS = 512


# Buffers in host memory for gradients that are computed again for the update.
PASSING_GRADIENTS = 2
# Buffers on the device for states that are updated on their way through it.
PASSING_STATES = 2


class Residency(NamedTuple):
    """A placement in sums: all that memory and time depend on. Elements are trained ones, of layers only."""

    device_state: int
    host_state: int
    link_state: int
    device_moments: int  # bytes of the optimizer's state beside the masters
    host_moments: int
    link_moments: int
    device_weights: int  # bytes in buffers of their own
    filled_weights: int  # of these, bytes sent there once a step
    streamed_weights: int  # bytes sent before each use
    cast_weights: int  # bytes made from the master copy before each use
    kept: int  # bytes of activations
    recomputed: int  # layers
    recompute_seconds: float
    slots: int
    chunk: int
    offload: bool
    share: bool
    ends_on_host: bool
    first_waits: bool  # whether the first layer is updated by the host
    graph: bool = False  # whether a step is recorded
    twice: int = 0  # layers at the end whose gradients are computed twice
    twice_state: int = 0  # their elements


def residency_of(placement: Placement, work: Work, recompute: tuple[float, ...]) -> Residency:
    """The sums of any placement."""
    states, moments = ({"device": 0, "host": 0, "link": 0} for _ in range(2))
    device = filled = streamed = cast = kept = recomputed = 0
    seconds = 0.0
    for index, layer in enumerate(placement.layers):
        states[layer.state] += work.trained[index]
        moments[layer.state] += work.moments[index]
        weights = work.weights[index]
        if layer.keep or layer.weights == "device":
            if not (work.compute_bytes == 4 and work.full and layer.state == "device"):
                device += weights
            if layer.state != "device" or (not work.full and layer.weights == "stream"):
                filled += weights
        elif layer.weights == "stream":
            streamed += weights
        else:
            cast += weights
        if layer.keep:
            kept += work.kept[index]
        else:
            recomputed += 1
            seconds += recompute[index]
    return Residency(
        device_state=states["device"],
        host_state=states["host"],
        link_state=states["link"],
        device_moments=moments["device"],
        host_moments=moments["host"],
        link_moments=moments["link"],
        device_weights=device,
        filled_weights=filled,
        streamed_weights=streamed,
        cast_weights=cast,
        kept=kept,
        recomputed=recomputed,
        recompute_seconds=seconds,
        slots=placement.slots,
        chunk=placement.loss_chunk_tokens,
        offload=placement.offload_inputs,
        share=placement.share_gradients,
        ends_on_host=placement.embedding.state != "device",
        first_waits=placement.layers[0].state == "host",
        graph=placement.cuda_graph,
        twice=placement.gradients_twice,
        twice_state=sum(work.trained[work.count - placement.gradients_twice :]),
    )


class Bytes(NamedTuple):
    """Peak bytes by kind in one memory."""

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    overhead: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations + self.overhead

    def plus(self, other: "Bytes") -> "Bytes":
        return Bytes(*(mine + more for mine, more in zip(self, other, strict=True)))


def device_bytes(work: Work, sums: Sums, at: Residency) -> Bytes:
    """Peak on the device."""
    c, pool = work.compute_bytes, sums.one_of_each_kind
    weights = at.device_weights + 4 * at.device_state
    if at.streamed_weights or at.cast_weights:
        weights += at.slots * sums.largest_weights
    weights += work.decoded
    gradients = c * (at.device_state + at.link_state)
    optimizer = at.device_moments
    if at.host_state:
        gradients += 2 * c * pool
    if at.link_state:
        # A copy for computing beside the master, unless it is a half of it.
        staged = 4 + (0 if work.bf16 else c)
        optimizer += PASSING_STATES * (staged * sums.largest_trained + sums.largest_moments)
    if work.accumulation > 1 and c < 4:
        gradients += 4 * pool
    if work.full:
        weights += 0 if c == 4 and not at.ends_on_host else c * work.ends
        # A sum in fp32, which stays open over the whole pass; what leaves the device has two buffers.
        gradients += (2 if at.ends_on_host else 1) * c * work.ends + (4 * work.ends if c < 4 else 0)
        if not at.ends_on_host:
            weights += 4 * work.ends
            optimizer += work.ends_moments
    else:
        # Frozen embedding and head, and the adapters' copy for computing.
        weights += c * work.ends + (c * at.device_state if c < 4 else 0)
    return Bytes(weights, gradients, optimizer, activation_bytes(work, at), overhead_bytes(work))


def host_bytes(work: Work, at: Residency) -> Bytes:
    """Peak in host memory beside a GPU; on a CPU it is all one memory."""
    c = work.compute_bytes
    ends_on_host = work.full and at.ends_on_host
    on_host = at.host_state + (work.ends if ends_on_host else 0)
    moments = at.host_moments + at.link_moments + (work.ends_moments if ends_on_host else 0)
    elements = on_host + at.link_state
    weights = (4 + work.host_copy) * elements
    if not work.full:
        weights += at.streamed_weights + at.filled_weights
    gradients = 0 if at.share and work.host_copy else c * (on_host - at.twice_state)
    if at.twice:
        gradients += PASSING_GRADIENTS * c * max(work.trained)
    inputs = at.recomputed * work.input_bytes if at.offload else 0
    overhead = costs.HOST_OVERHEAD_WITH_GPU_BYTES if work.on_gpu else 0
    return Bytes(weights, gradients, moments, inputs, overhead)


def loss_bytes(work: Work, chunk: int) -> int:
    """Logits and their gradient; compiled, nothing of them exists in fp32."""
    c, shape = work.compute_bytes, work.shape
    logits = min(chunk, work.tokens) * shape.vocab_size
    if not (work.on_gpu and work.compiled):
        return logits * (2 * c + 4)
    return logits * 2 * c + (c * shape.vocab_size * shape.hidden_size if work.full else 0)


def activation_bytes(work: Work, at: Residency) -> int:
    layers = min(at.recomputed, costs.OFFLOAD_BUFFERS) if at.offload else at.recomputed
    # The loss is over when the backward pass begins: only the larger of the two counts.
    passing = max(work.working, loss_bytes(work, at.chunk))
    # The loss's gradient waits for the second backward pass.
    layers += 1 if at.twice else 0
    total = at.kept + (layers + 2) * work.input_bytes + passing + work.masks + work.update_buffers
    if at.graph:
        # The memory of a recording is its own: evaluations need more beside it.
        evaluated = min(RECORDED_EVALUATION_TOKENS, work.tokens) * work.shape.vocab_size
        total += 2 * work.input_bytes + work.working // 2 + evaluated * (work.compute_bytes + 8)
    return int(total * costs.RESERVED_OVER_ALLOCATED)


def overhead_bytes(work: Work) -> int:
    if work.on_gpu:
        return costs.GPU_CONTEXT_BYTES + costs.GPU_WORKSPACE_BYTES
    return costs.HOST_OVERHEAD_BYTES

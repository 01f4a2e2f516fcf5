"""A plan in words: where things live, what limits the run, what would help."""

from gpubloom.plan.placement import BlockPlacement, Placement
from gpubloom.plan.workload import Work


def placement_sentence(placement: Placement, work: Work) -> str:
    """Where the layers live, in one sentence or two."""
    device = "GPU" if work.on_gpu else "CPU"
    groups: dict[str, int] = {}
    for layer in placement.layers:
        where = _where(layer, work, device)
        groups[where] = groups.get(where, 0) + 1
    if len(groups) == 1:
        parts = [f"all {len(placement.layers)} layers: {next(iter(groups))}"]
    else:
        parts = [f"{count} {'layer' if count == 1 else 'layers'}: {where}" for where, count in groups.items()]
    kept = sum(layer.keep for layer in placement.layers)
    kept_text = {0: "every layer is computed again in the backward pass", len(placement.layers): ""}.get(
        kept,
        f"the last {kept} keep their activations, the others are computed again"
        if kept > 1
        else "the last one keeps its activations, the others are computed again",
    )
    text = "; ".join([*parts, *filter(None, [kept_text])])
    extras = []
    if placement.embedding.state != "device":
        extras.append("Embedding and head are updated by the host.")
    if placement.offload_inputs:
        extras.append("Inputs of layers wait in host memory.")
    if placement.share_gradients:
        extras.append("Gradients take the place of the host's compute copies.")
    return " ".join([text[0].upper() + text[1:] + ".", *extras])


def advice(limited_by: str, placement: Placement, work: Work) -> tuple[str, ...]:
    """What limits the run and what would help, most important first."""
    found = [_HELP[limited_by]]
    recomputed = sum(not layer.keep for layer in placement.layers)
    if recomputed and limited_by in {"the GPU", "the CPU"}:
        found.append(
            f"Memory: {recomputed} of {work.count} layers are computed twice; "
            "more of it, or a smaller batch, would keep their activations."
        )
    if placement.share_gradients:
        found.append("Host memory is nearly full.")
    return tuple(found)


_HELP = {
    "the GPU": "The GPU computes all the time.",
    "the CPU": "The CPU computes all the time.",
    "the link": "The link between host and GPU is what the GPU waits for; larger batches would hide it.",
    "the host optimizer": "The optimizer on the CPU is what the GPU waits for; larger batches would hide it.",
    "host memory's bandwidth": "Host memory cannot feed optimizer and link at once; "
    "larger batches would hide it.",
}


def _where(layer: BlockPlacement, work: Work, device: str) -> str:
    if not work.full:
        text = f"frozen on the {device}" if layer.weights == "device" else "frozen, streamed from the host"
        return text + (" in 4 bits" if work.method == "qlora" else "")
    if layer.state == "device":
        return f"on the {device} with optimizer state"
    updated = "updated by the CPU" if layer.state == "host" else "updated through the link"
    return f"{'sent once a step' if layer.weights == 'device' else 'streamed'}, {updated}"

"""Memory and hours of a script: through `plan` where its model's shape is known, by rules of thumb otherwise.

Nothing here is stated by anybody: values are derived, or assumed where anything they rest on was.
"""

import math
from dataclasses import dataclass

from gpubloom.plan import DecoderShape, Hardware, ModelConfig, Plan, TrainConfig, predict
from gpubloom.plan.hardware import GIBIBYTE, GPU_KINDS
from gpubloom.plan.placement import BlockPlacement, Placement
from gpubloom.scripts.data_used import examples_of, tokens_of
from gpubloom.scripts.model_size import ModelSize
from gpubloom.scripts.requirements import Confidence, Detected, Evidence

# By memory; a script gets the smallest it fits on, with what it computes in.
_REFERENCES = ("T4", "A10", "L40S", "A100", "H200")
_ASSUMED_BATCH, _ASSUMED_SEQUENCE = 8, 1_024
_ASSUMED_GB, _ASSUMED_HOURS = 8.0, 1.0
# Loading libraries and data, and the first batches.
_START_HOURS = 0.05
# What ordinary scripts reach of a GPU's peak.
_EFFICIENCY = 0.3
# Half of the products of an fp32 script go through the fast units, rounded.
_FP32_SHARE = 0.25
_PATCHES = 196
_OPERATIONS_PER_NUMBER = 250


@dataclass(frozen=True)
class Work:
    """What the other parts found, as the estimates need it."""

    size: ModelSize
    trains: bool
    on_gpu: bool
    method: str
    rank: int
    dtype: Detected[str] | None
    batch: Detected[int] | None
    accumulation: Detected[int] | None
    sequence: Detected[int] | None
    iterations: Detected[int] | None
    epochs: Detected[int] | None
    datasets: tuple[Detected[str], ...]
    gpus: Detected[int]
    sharded: bool
    recomputes: bool
    compiled: bool

    @property
    def rows(self) -> int:
        return self.batch.value if self.batch else _ASSUMED_BATCH

    @property
    def tokens_per_row(self) -> int:
        if self.size.kind == "image":
            return _PATCHES
        if self.sequence is not None:
            return self.sequence.value
        most = self.size.shape.max_positions if self.size.shape else None
        return min(most or _ASSUMED_SEQUENCE, _ASSUMED_SEQUENCE)

    @property
    def bytes_per_number(self) -> int:
        return 4 if self.dtype is None or self.dtype.value == "fp32" else 2

    @property
    def micro_batches(self) -> int:
        return self.accumulation.value if self.accumulation else 1

    @property
    def is_sure(self) -> bool:
        """Whether nothing that memory rests on had to be assumed."""
        rests_on = (self.size.parameters, self.batch)
        known = all(found is not None and found.confidence != "assumed" for found in rests_on)
        return known and (self.sequence is not None or self.size.kind != "decoder")


@dataclass(frozen=True)
class Estimate:
    gpus: Detected[int]
    memory_gb: Detected[float]
    hours: Detected[float]
    reference: str | None
    iterations: Detected[int] | None
    operations: Detected[float] | None


def estimate(work: Work) -> Estimate:
    iterations = work.iterations or _counted_iterations(work)
    if not work.on_gpu:
        memory = Detected[float](
            value=0.0, confidence="derived", reason="The script needs no GPU.", evidence=work.gpus.evidence
        )
        hours = Detected[float](
            value=_ASSUMED_HOURS,
            confidence="assumed",
            reason="The script does not show how long it runs on a CPU.",
        )
        return Estimate(work.gpus, memory, hours, None, iterations, None)
    planned = work.trains and work.size.shape is not None
    gigabytes, reason = _memory(work)
    gpus = work.gpus
    if work.sharded:
        gpus, gigabytes, shared = _shared(work, gigabytes)
        reason += shared
    reference = reference_gpu(gigabytes, work.dtype)
    confidence: Confidence = "derived" if planned and work.is_sure else "assumed"
    memory = Detected[float](
        value=round(gigabytes, 1), confidence=confidence, evidence=_lines(work), reason=reason
    )
    hours, operations = _hours(work, iterations, reference, gpus.value)
    return Estimate(gpus, memory, hours, reference, iterations, operations)


def _memory(work: Work) -> tuple[float, str]:
    parameters = work.size.parameters
    if parameters is None:
        return _ASSUMED_GB, "The size of the model is not known; this is enough memory for many small models."
    rows = f"a batch of {work.rows}" + ("" if work.batch else " (assumed)")
    if not work.trains:
        each = 4.0 if work.dtype is not None and work.dtype.value == "fp32" else 2.0
        return (
            1.0 + 1.2 * each * parameters.value / 1e9,
            f"{each:.0f} bytes per parameter, plus 20 % for working memory.",
        )
    if work.size.shape is not None and (plan := _planned(work, "H200")) is not None:
        length = f"{work.tokens_per_row:,} tokens per row" + ("" if work.sequence else " (assumed)")
        return plan.memory_total_bytes / 1e9, f"Weights, gradients, optimizer state and {rows} with {length}."
    # Weights, gradients and Adam's moments; adapters have next to none of their own.
    each = {"full": 16.0, "lora": 2.2, "qlora": 0.75}[work.method]
    state = each * parameters.value / 1e9
    activations = _activations(work, parameters.value)
    return (
        1.0 + state + activations,
        f"{each:g} bytes per parameter, plus a rough estimate of the activations for {rows}.",
    )


def _activations(work: Work, parameters: int) -> float:
    """GB; a transformer of this size would be about this wide and deep."""
    if work.size.operations is not None:
        # What image models keep: a number for every few hundred operations.
        return work.rows * work.size.operations / _OPERATIONS_PER_NUMBER * work.bytes_per_number / 1e9
    width = max(64.0, 4 * math.cbrt(parameters / 12))
    layers = max(1.0, parameters / (12 * width**2))
    numbers = 1 if work.recomputes else 17
    return work.rows * work.tokens_per_row * width * layers * numbers * work.bytes_per_number / 1e9


def _shared(work: Work, gigabytes: float) -> tuple[Detected[int], float, str]:
    """State that is divided among GPUs: as many as it takes, unless the script says how many."""
    room = GPU_KINDS["A100"].gibibytes * GIBIBYTE / 1e9 * 0.9
    gpus = work.gpus
    if gpus.confidence == "assumed" and gigabytes > room:
        count = 2 ** math.ceil(math.log2(gigabytes / room))
        reason = f"{gigabytes:.0f} GB are sharded across GPUs of 80 GB."
        gpus = Detected(value=count, confidence="derived", evidence=gpus.evidence, reason=reason)
    if gpus.value <= 1:
        return gpus, gigabytes, ""
    return gpus, 2.0 + gigabytes / gpus.value, f" Sharded across {gpus.value} GPUs."


def reference_gpu(gigabytes: float, dtype: Detected[str] | None) -> str:
    """The smallest usual GPU that holds so much, or the largest of them."""
    for name in _REFERENCES:
        kind = GPU_KINDS[name]
        if dtype is not None and dtype.value == "bf16" and not kind.bf16:
            continue
        if kind.gibibytes * GIBIBYTE / 1e9 >= gigabytes:
            return name
    return _REFERENCES[-1]


def _planned(work: Work, gpu: str) -> Plan | None:
    shape = work.size.shape
    assert shape is not None
    try:
        config = TrainConfig(
            batch_size=work.rows,
            model=ModelConfig(context_length=work.tokens_per_row),
            device="cuda",
            precision=_precision(work.dtype, gpu),
            method=work.method,
            compile="on" if work.compiled else "off",
            **({} if work.method == "full" else {"lora": {"rank": work.rank}}),
        )
        return predict(
            config, Hardware.parse(f"{gpu}, 512 GB host"), _everything_there(work, shape), shape=shape
        )
    except ValueError:
        # Sizes that the planner refuses; the rule of thumb takes any.
        return None


def _everything_there(work: Work, shape: DecoderShape) -> Placement:
    """As an ordinary loop does it: all on the GPU, logits of the whole batch at once."""
    ends, layer = BlockPlacement(), BlockPlacement(keep=not work.recomputes)
    return Placement(
        embedding=ends,
        layers=(layer,) * len(shape.layers),
        head=None if shape.tied else ends,
        loss_chunk_tokens=work.rows * work.tokens_per_row,
    )


def _precision(dtype: Detected[str] | None, gpu: str) -> str:
    wanted = dtype.value if dtype is not None else "fp32"
    return "fp16" if wanted == "bf16" and not GPU_KINDS[gpu].bf16 else wanted


def _counted_iterations(work: Work) -> Detected[int] | None:
    """Epochs of a well-known dataset are so many steps."""
    if work.epochs is None or work.batch is None:
        return None
    rows = work.batch.value * work.micro_batches * max(1, work.gpus.value)
    known = examples_of(work.datasets)
    count = known[0] if known else None
    if known is None and (known := tokens_of(work.datasets)) is not None:
        count = known[0] // max(1, work.tokens_per_row)
    if known is None or count is None:
        return None
    steps = max(1, work.epochs.value * math.ceil(count / rows))
    passes = "One epoch of" if work.epochs.value == 1 else f"{work.epochs.value} epochs of"
    return Detected(
        value=steps,
        confidence="derived",
        evidence=(*work.epochs.evidence[:1], *known[1].evidence[:1]),
        reason=f"{passes} the {count:,} rows of {known[1].value}, {rows} rows per step.",
    )


def _hours(
    work: Work, iterations: Detected[int] | None, reference: str, gpus: int
) -> tuple[Detected[float], Detected[float] | None]:
    if not work.trains or iterations is None or work.size.parameters is None:
        reason = (
            "The script does not train." if not work.trains
            else "The number of steps is not known." if iterations is None
            else "The size of the model is not known."
        )  # fmt: skip
        return Detected(
            value=_ASSUMED_HOURS, confidence="assumed", reason=f"{reason} One hour is assumed."
        ), None
    operations = _operations(work, iterations.value)
    plan = _planned(work, reference) if work.size.shape is not None else None
    if plan is not None:
        seconds = iterations.value * work.micro_batches * plan.step_seconds
        how = f"{iterations.value:,} steps, with the estimated time per step on {reference}."
    else:
        factor = _FP32_SHARE if work.dtype is None or work.dtype.value == "fp32" else 1.0
        seconds = operations / (GPU_KINDS[reference].flops * _EFFICIENCY * factor)
        how = f"{iterations.value:,} steps at {_EFFICIENCY:.0%} of the peak speed of {reference}."
    sure = plan is not None and work.is_sure and iterations.confidence != "assumed"
    evidence = tuple(dict.fromkeys((*iterations.evidence, *_lines(work))))[:6]
    hours = Detected[float](
        value=_rounded(seconds / 3600 + _START_HOURS),
        confidence="derived" if sure else "assumed",
        evidence=evidence,
        reason=how + " Evaluation and saving take additional time.",
    )
    total = Detected[float](
        value=float(f"{operations * max(1, gpus):.3g}"),
        confidence=hours.confidence,
        evidence=evidence,
        reason="6 operations per parameter and token."
        if work.size.operations is None
        else "Three times the operations of a forward pass.",
    )
    return hours, total


def _operations(work: Work, steps: int) -> float:
    """Of one GPU."""
    rows = float(work.rows) * work.micro_batches * steps
    if work.size.operations is not None:
        return 3 * work.size.operations * rows
    assert work.size.parameters is not None
    each = 6 if work.method == "full" else 4
    return each * float(work.size.parameters.value) * rows * work.tokens_per_row


def _rounded(hours: float) -> float:
    return float(f"{hours:.2g}") if hours < 100 else round(hours)


def _lines(work: Work) -> tuple[Evidence, ...]:
    found = (work.size.parameters, work.batch, work.sequence)
    return tuple({line: None for each in found if each is not None for line in each.evidence[:2]})[:6]

"""What a job needs of a machine, as far as its price is concerned."""

from dataclasses import dataclass

from gpubloom.errors import InputError
from gpubloom.offers.prices import Span
from gpubloom.plan.hardware import GPU_KINDS
from gpubloom.scripts import Confidence, Detected, Requirements

# By memory. Hours without a GPU's name are hours on the smallest of these that holds the job.
_REFERENCES = {"T4": 16, "A10": 24, "L40S": 48, "A100": 80, "H200": 141}
# How far off a value may be, down and up, by how it was found.
_MEMORY_SPREAD: dict[Confidence, tuple[float, float]] = {
    "stated": (1.0, 1.0),
    "derived": (0.9, 1.2),
    "assumed": (0.6, 1.5),
}
_HOURS_SPREAD: dict[Confidence, tuple[float, float]] = {
    "stated": (1.0, 1.0),
    "derived": (0.7, 1.6),
    "assumed": (0.3, 3.0),
}
# What ordinary scripts reach of a GPU's peak.
_PART_OF_PEAK = Span(0.15, 0.3, 0.45)
# Hours and gigabytes of anything that is meant seriously.
_MOST = 1_000_000


@dataclass(frozen=True)
class Need:
    """Memory is of one GPU, in GB. `hours` are with `gpus` GPUs of the kind `reference_gpu`."""

    memory_gb: Span
    hours: Span
    reference_gpu: str
    gpus: int = 1
    # Hours that were stated without a GPU are the same on every GPU: nobody knows which was meant.
    hours_of_any_gpu: bool = False
    # A script that wants none is priced with one: nobody here rents out machines without.
    wants_gpu: bool = True
    multi_node: bool = False
    interactive: bool = False
    bf16: bool = False
    # Whether it goes on from a checkpoint after it was ended.
    resumes: bool = True
    # On the machine's disk; brought there; taken away.
    disk_gb: float = 50.0
    data_gb: float = 1.0
    artifacts_gb: float = 2.0
    checkpoint_minutes: float = 30.0
    # Which of these were assumed, for whoever shows them.
    assumed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what, high in (("hours", self.hours.high), ("GB", self.memory_gb.high)):
            if not 0 <= high <= _MOST:
                raise InputError(
                    "need_out_of_range",
                    f"A job of {high:g} {what} cannot be priced: give a number from 0 to {_MOST:,}.",
                )
        if self.gpus < 1:
            raise InputError(
                "need_out_of_range", f"A job on {self.gpus} GPUs cannot be priced: give at least 1."
            )

    @classmethod
    def of(
        cls,
        memory_gb: float,
        hours: float | None = None,
        *,
        operations: float | None = None,
        reference_gpu: str | None = None,
        gpus: int = 1,
        multi_node: bool = False,
        interactive: bool = False,
        bf16: bool = False,
        resumes: bool = True,
        disk_gb: float = 50.0,
        data_gb: float = 1.0,
    ) -> "Need":
        """What a person says. ValueError: neither hours nor operations, or a GPU that is not known."""
        reference = reference_gpu or smallest_gpu(memory_gb, bf16=bf16)
        if reference not in GPU_KINDS:
            names = ", ".join(GPU_KINDS)
            raise InputError("unknown_gpu", f"{reference} is not a known GPU. Known GPUs: {names}.")
        if hours is not None:
            span = Span.of(hours)
        elif operations is not None:
            span = hours_of(operations, reference, gpus)
        else:
            raise InputError(
                "need_without_duration",
                "Give the number of hours or the number of floating-point operations of the job.",
            )
        return cls(
            memory_gb=Span.of(memory_gb),
            hours=span,
            reference_gpu=reference,
            gpus=gpus,
            multi_node=multi_node,
            interactive=interactive,
            bf16=bf16,
            resumes=resumes,
            disk_gb=disk_gb,
            data_gb=data_gb,
        )

    @classmethod
    def from_requirements(cls, found: Requirements, *, data_gb: float = 1.0) -> "Need":
        """What was found in a script; the less sure a value is, the wider its span."""
        gpus = max(1, found.gpus.value)
        bf16 = found.dtype is not None and found.dtype.value == "bf16"
        memory = max(0.0, found.gpu_memory_gb.value)
        reference = found.reference_gpu
        if reference not in GPU_KINDS:
            reference = smallest_gpu(memory, bf16=bf16)
        resumes = found.checkpoints is not None and found.checkpoints.value.resumes_with is not None
        named: dict[str, Detected[float] | Detected[int] | Detected[bool]] = {
            "memory": found.gpu_memory_gb,
            "hours": found.duration_hours,
            "gpus": found.gpus,
        }
        return cls(
            memory_gb=Span.around(memory, *_MEMORY_SPREAD[found.gpu_memory_gb.confidence]),
            hours=_hours_of(found),
            hours_of_any_gpu=found.hours_of_any_gpu,
            reference_gpu=reference,
            gpus=gpus,
            wants_gpu=found.gpus.value > 0,
            multi_node=found.multi_node.value,
            interactive=found.interactive.value,
            bf16=bf16,
            resumes=resumes,
            data_gb=data_gb,
            # One GPU is what a script that says nothing gets, and no guess worth a label.
            assumed=tuple(
                name
                for name, value in named.items()
                if value.confidence == "assumed" and not (name == "gpus" and gpus == 1)
            ),
        )


def _hours_of(found: Requirements) -> Span:
    hours, stated = found.duration_hours, found.stated_duration
    if stated is not None and stated.confidence == hours.confidence and hours.evidence:
        low, high = sorted((max(0.0, stated.value.low_hours), max(0.0, stated.value.high_hours)))
        return Span(low, min(max(hours.value, low), high), high)
    return Span.around(max(0.0, hours.value), *_HOURS_SPREAD[hours.confidence])


def smallest_gpu(memory_gb: float, *, bf16: bool = False) -> str:
    """The smallest of a few usual GPUs that holds so much, or the largest of them."""
    for name, gigabytes in _REFERENCES.items():
        if gigabytes >= memory_gb and (GPU_KINDS[name].bf16 or not bf16):
            return name
    return "H200"


def hours_of(operations: float, gpu: str, gpus: int) -> Span:
    """Hours of so many floating-point operations, at what ordinary scripts reach of a GPU's peak."""
    at_peak = operations / (GPU_KINDS[gpu].flops * max(1, gpus)) / 3600
    part = _PART_OF_PEAK
    return Span(at_peak / part.high, at_peak / part.likely, at_peak / part.low)

"""Why a run failed: the evidence that an exception or a process leaves, and the likely cause. No I/O.

A cause rests on the class of an exception, its `errno`, a message of the library that raised it as a whole
phrase, or the signal that ended the process; never on a word that may stand in any sentence. Where several
exceptions are chained, the outermost one that is recognised counts.
"""

import re
import signal
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpubloom.errors import CodedError
from gpubloom.traincard.causes import CAUSES, Cause

_TRACEBACK_CHARACTERS = 32_768
_MOST_CHAINED = 8
_MESSAGE_CHARACTERS = 8_192


@dataclass(frozen=True, slots=True)
class Evidence:
    """One exception: the names of its class and its bases, what it says, the system's error number."""

    types: tuple[str, ...]
    message: str
    errno: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The evidence as JSON holds it."""
        return asdict(self)


def evidence_of(problem: BaseException) -> Iterator[Evidence]:
    """The exception and what led to it, outermost first."""
    seen: set[int] = set()
    current: BaseException | None = problem
    while current is not None and id(current) not in seen and len(seen) < _MOST_CHAINED:
        seen.add(id(current))
        kinds = type(current).__mro__
        number = getattr(current, "errno", None)
        yield Evidence(
            tuple(qualified(kind) for kind in kinds if kind not in {BaseException, Exception, object}),
            error_text(current)[:_MESSAGE_CHARACTERS],
            number if isinstance(number, int) else None,
        )
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def qualified(kind: type) -> str:
    """The name of a class as a traceback shows it."""
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def error_text(problem: BaseException) -> str:
    """What an exception says, also when its own `__str__` fails."""
    try:
        return str(problem)
    except Exception:  # noqa: BLE001 - somebody else's __str__; the record matters more than its wording
        return f"<{type(problem).__name__} without a readable message>"


@dataclass(frozen=True, slots=True)
class _Rule:
    """All conditions that are given must hold. `types`: last parts of class names."""

    cause: str
    types: frozenset[str] = frozenset()
    message: re.Pattern[str] | None = None
    errnos: frozenset[int] = frozenset()

    def holds(self, evidence: Evidence) -> bool:
        if self.types and not any(name.rpartition(".")[2] in self.types for name in evidence.types):
            return False
        if self.errnos and evidence.errno not in self.errnos:
            return False
        return self.message is None or self.message.search(evidence.message) is not None


def _rule(cause: str, types: str = "", message: str = "", errnos: Sequence[int] = ()) -> _Rule:
    pattern = re.compile(message, re.MULTILINE) if message else None
    return _Rule(cause, frozenset(types.split()), pattern, frozenset(errnos))


# CUDA's own errors: RuntimeError in torch up to 2.7, AcceleratorError since.
_CUDA = r"^(?:CUDA|HIP) error: "
# What wraps an error of a data loader's process: the text of the original is in the message.
_LOADER = r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) "

# First match wins.
_RULES: tuple[_Rule, ...] = (
    _rule("gpu_out_of_memory", "OutOfMemoryError"),
    _rule(
        "gpu_out_of_memory",
        "RuntimeError",
        r"^(?:CUDA|HIP) out of memory\b"
        r"|^MPS backend out of memory",
    ),
    _rule("gpu_out_of_memory", "RuntimeError", _CUDA + r"CUBLAS_STATUS_ALLOC_FAILED"),
    # Allocators say OutOfMemoryError; this comes from pinned memory, or before there is an allocator.
    _rule("cuda_allocation", "RuntimeError", _CUDA + r"out of memory"),
    _rule(
        "host_out_of_memory",
        "RuntimeError",
        r"DefaultCPUAllocator: can't allocate memory"
        r"|^std::bad_alloc$",
    ),
    _rule("host_out_of_memory", "MemoryError"),
    _rule("host_out_of_memory", "OSError", errnos=(12,)),
    _rule("host_out_of_memory", "RuntimeError", _LOADER + r"is killed by signal: Killed"),
    _rule(
        "native_crash",
        "RuntimeError",
        _LOADER + r"is killed by signal: (?:Segmentation fault"
        r"|Aborted)",
    ),
    _rule("shared_memory_full", "RuntimeError", _LOADER + r"is killed by signal: Bus error"),
    _rule("data_loader_stuck", "RuntimeError", r"^DataLoader timed out after "),
    _rule("host_out_of_memory", message=r"^Caught MemoryError in DataLoader worker process"),
    _rule("disk_full", message=r"^Caught OSError in DataLoader worker process[\s\S]*\[Errno 28\]"),
    _rule("data_invalid", message=r"^Caught \w+ in DataLoader worker process"),
    _rule("disk_full", "OSError", errnos=(28, 122)),
    _rule(
        "disk_full",
        message=r"\(os error (?:28|122)\)|\[Errno (?:28"
        r"|122)\]|: No space left on device$",
    ),
    _rule("disk_full", "RuntimeError", r"PytorchStreamWriter failed writing file "),
    _rule("disk_full", "OSError", r"^\d+ requested and \d+ written$"),
    # Not seen: by the names that CUDA gives these errors.
    _rule("gpu_hardware", message=_CUDA + r"(?:uncorrectable (?:ECC|NVLink) error|.*hardware)"),
    _rule("device_side_assert", message=_CUDA + r"device-side assert triggered"),
    _rule(
        "illegal_memory_access",
        message=_CUDA + r"(?:an illegal memory access"
        r"|misaligned address|unspecified launch)",
    ),
    _rule(
        "illegal_memory_access",
        message=_CUDA + r"(?:an illegal instruction"
        r"|invalid program counter)",
    ),
    _rule(
        "gpu_not_usable",
        message=_CUDA + r"(?:invalid device ordinal"
        r"|no kernel image|no CUDA-capable device)",
    ),
    _rule(
        "gpu_not_usable",
        message=r"^(?:No CUDA GPUs are available"
        r"|Found no NVIDIA driver|Torch not compiled with)",
    ),
    _rule(
        "gpu_not_usable",
        message=r"CUDA driver version is insufficient"
        r"|driver on your system is too old",
    ),
    _rule("cuda_after_fork", "RuntimeError", r"^Cannot re-initialize CUDA in forked subprocess"),
    _rule("device_mismatch", "RuntimeError", r"^Expected all tensors to be on the same device"),
    _rule("port_in_use", message=r"EADDRINUSE|[Aa]ddress already in use"),
    _rule("nccl_set_up", message=r"Duplicate GPU detected|ncclInvalidUsage|ncclInvalidArgument"),
    _rule("lost_rank", "DistBackendError DistNetworkError DistStoreError RendezvousTimeoutError"),
    _rule("lost_rank", "RuntimeError", r"\[[^\]]*gloo/[\w/]+\.(?:cc|h):\d+\]"),
    _rule(
        "lost_rank",
        "RuntimeError",
        r"Watchdog caught collective operation timeout"
        r"|NCCL communicator was aborted",
    ),
    _rule(
        "lost_rank",
        "RuntimeError",
        r"^(?:\[Rank \d+\]: )?(?:Rank"
        r"|Ranks) [\d, ]+ failed to pass monitoredBarrier",
    ),
    _rule("host_out_of_memory", "ChildFailedError", r"exitcode\s*: -9\b"),
    _rule("native_crash", "ChildFailedError", r"exitcode\s*: -(?:11|6)\b"),
    _rule("child_failed", "ChildFailedError ProcessRaisedException ProcessExitedException"),
    _rule("nan_loss", "FloatingPointError"),
    _rule(
        "nan_loss",
        "RuntimeError",
        r"returned nan values in its \d+th output"
        r"|is non-finite, so it cannot be clipped",
    ),
    _rule("nan_loss", "RuntimeError", r"^probability tensor contains either `?inf`?, `?nan`?"),
    _rule(
        "nan_loss",
        message=r"(?i)\bloss\b.{0,30}(?:\bis\b|\bwas\b|\bbecame\b"
        r"|[:=]).{0,20}(?:\bnan\b|\binf(?:inite)?\b|not finite)",
    ),
    _rule("data_exhausted", "StopIteration"),
    _rule("data_exhausted", "RuntimeError", r"^generator raised StopIteration$"),
    _rule(
        "data_exhausted",
        "ValueError",
        r"^num_samples should be a positive i"
        r"nteger value, but got num_samples=0",
    ),
    _rule(
        "token_out_of_range",
        "IndexError",
        r"^index out of range in self$"
        r"|^Target -?\d+ is out of bounds",
    ),
    _rule("checkpoint_does_not_fit", "RuntimeError", r"^Error\(s\) in loading state_dict for "),
    _rule("checkpoint_does_not_fit", "ValueError", r"^loaded state dict (?:has|contains) "),
    _rule("checkpoint_damaged", "SafetensorError"),
    _rule("checkpoint_damaged", "RuntimeError", r"^PytorchStreamReader failed "),
    _rule("checkpoint_damaged", "EOFError", r"Ran out of input"),
    _rule("checkpoint_unsafe", "UnpicklingError", r"Weights only load failed"),
    _rule("checkpoint_damaged", "UnpicklingError"),
    _rule(
        "shape_mismatch",
        "RuntimeError",
        r"shapes cannot be multiplied"
        r"|^The size of tensor a \(\d+\) must match",
    ),
    _rule(
        "shape_mismatch",
        "RuntimeError",
        r"^stack expects each tensor to be equal size"
        r"|^Sizes of tensors must match",
    ),
    _rule(
        "dtype_mismatch",
        "RuntimeError",
        r"(?:must have|to have) the same dtype"
        r"|^expected scalar type \w+ but found",
    ),
    _rule("nothing_to_train", "RuntimeError", r"^element 0 of tensors does not require grad"),
    _rule("missing_package", "ModuleNotFoundError ImportError"),
    _rule("missing_library", "OSError", r"cannot open shared object file"),
    _rule("data_invalid", "JSONDecodeError UnicodeDecodeError ArrowInvalid"),
    _rule(
        "missing_column",
        "KeyError",
        r"^'(?:text|messages|prompt|completion"
        r"|instruction|input_ids|labels)'$",
    ),
    _rule("file_not_found", "FileNotFoundError"),
    _rule("no_permission", "PermissionError"),
    _rule("read_only_disk", "OSError", errnos=(30,)),
    _rule("too_many_open_files", "OSError", errnos=(23, 24)),
    _rule("network", "ConnectionError gaierror ConnectError ReadTimeout ConnectTimeout"),
)

_SIGNALS: dict[int, str] = {
    signal.SIGSEGV: "native_crash",
    signal.SIGABRT: "native_crash",
    signal.SIGBUS: "shared_memory_full",
    signal.SIGILL: "illegal_instruction",
    signal.SIGKILL: "killed",
}


def likely_cause(evidence: Sequence[Evidence], *, loss_is_finite: bool = True) -> Cause | None:
    """The likely cause; None when nothing is recognised."""
    for each in evidence:
        for rule in _RULES:
            if rule.holds(each):
                return CAUSES[rule.cause]
    return None if loss_is_finite else CAUSES["nan_loss"]


def cause_of_signal(number: int, *, oom_kills: int | None = None) -> Cause | None:
    """The likely cause when a process left nothing but the signal that ended it.

    `oom_kills`: how many processes the kernel ended for lack of memory meanwhile, where it says so.
    """
    if number == signal.SIGKILL and oom_kills:
        return CAUSES["host_out_of_memory"]
    return CAUSES.get(_SIGNALS.get(number, ""))


def error_fields(problem: BaseException) -> dict[str, Any]:
    """The fields of an `error` event."""
    trace = "".join(traceback.format_exception(problem))
    if len(trace) > _TRACEBACK_CHARACTERS:
        half = _TRACEBACK_CHARACTERS // 2
        trace = f"{trace[:half]}\n… {len(trace) - 2 * half} characters left out …\n{trace[-half:]}"
    fields: dict[str, Any] = {
        "type": qualified(type(problem)),
        "message": error_text(problem),
        "traceback": trace,
    }
    if isinstance(problem, CodedError):
        fields["code"] = problem.code
    fields.update(cause_fields(list(evidence_of(problem))))
    return fields


def cause_fields(evidence: Sequence[Evidence], *, loss_is_finite: bool = True) -> dict[str, str]:
    """`cause` and `advice` of an `error` event; empty when nothing is recognised."""
    cause = likely_cause(evidence, loss_is_finite=loss_is_finite)
    if cause is None:
        return {}
    return {"cause": cause.code, "advice": _sentence(cause, evidence)}


# What torch says of a failed allocation: how much was asked for, and what was free of how much.
_ALLOCATION = re.compile(
    r"Tried to allocate (?P<asked>[\d.]+ \w+)\..*?"
    r"total capacity of (?P<total>[\d.]+ \w+) of which (?P<free>[\d.]+ \w+) is free",
    re.DOTALL,
)
_HOST_ALLOCATION = re.compile(
    r"(?:you tried to allocate (?P<bytes>\d+) bytes|Unable to allocate (?P<words>[\d.]+ \w+))"
)


def _sentence(cause: Cause, evidence: Sequence[Evidence]) -> str:
    """The advice, after the figures that the exception has."""
    for each in evidence:
        if cause.code == "gpu_out_of_memory" and (found := _ALLOCATION.search(each.message)):
            figures = f"It asked for {found['asked']} while {found['free']} of {found['total']} were free."
            return f"{figures} {cause.advice}"
        if cause.code == "host_out_of_memory" and (found := _HOST_ALLOCATION.search(each.message)):
            size = found["words"] or f"{int(found['bytes']) / 1e9:.1f} GB"
            return f"It asked for {size} at once. {cause.advice}"
    return cause.advice


_ERRNO = re.compile(r"^\[Errno (\d+)\] ")


def evidence_of_text(type_name: str, message: str) -> Evidence:
    """The evidence in the last line of a traceback that somebody else printed."""
    found = _ERRNO.match(message)
    number = int(found[1]) if found else None
    bases = ("OSError",) if number is not None else ()
    return Evidence((type_name, *bases), message, number)

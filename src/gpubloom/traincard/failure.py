"""Why a run failed, judged from its exception: pure functions, no I/O."""

import traceback
from typing import Any

from gpubloom.errors import CodedError

_TRACEBACK_CHARACTERS = 32_768

# First match wins. Words are looked for in "<type>: <message>", lower case.
_CAUSES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "gpu_out_of_memory",
        ("cuda out of memory", "outofmemoryerror", "hip out of memory", "mps backend out of memory",
         "cuda error: out of memory", "cublas_status_alloc_failed"),
        "The GPU ran out of memory. Use a smaller batch size or max sequence length, use gradient "
        "accumulation, or keep more of the model in host memory.",
    ),
    (
        "host_out_of_memory",
        ("memoryerror", "cannot allocate memory", "can't allocate memory", "bad_alloc", "defaultcpuallocator",
         "dataloader worker (pid", "killed by signal: killed"),
        "The machine ran out of memory (RAM). Use fewer data loader processes, a smaller batch size, "
        "or more RAM.",
    ),
    (
        "disk_full",
        ("no space left on device", "disk quota exceeded", "errno 28", "errno 122"),
        "The disk is full. Delete old checkpoints or keep fewer of them, then resume.",
    ),
    (
        "lost_rank",
        ("nccl", "gloo", "connection reset by peer", "connection closed by peer", "process group",
         "socket timeout", "rendezvous", "childfailederror"),
        "Another process of this run stopped answering. Check the last events of the other ranks to "
        "find out which process stopped, and why.",
    ),
    (
        "nan_loss",
        ("nan", "not finite", "non-finite", "nonfinite", "loss is inf"),
        "The loss is no longer a finite number. Resume from the last checkpoint with a lower learning "
        "rate, and check the data of the step that failed.",
    ),
)  # fmt: skip


def likely_cause(type_name: str, message: str, *, loss_is_finite: bool = True) -> tuple[str, str] | None:
    """A short code for the likely cause and a sentence of advice; None when nothing is recognised."""
    text = f"{type_name}: {message}".lower()
    words = set(text.replace(":", " ").replace(",", " ").replace(".", " ").split())
    for code, signs, advice in _CAUSES:
        # "nan" is part of many words ("nanoseconds"); it only counts as a word of its own.
        if any((sign in words) if sign == "nan" else (sign in text) for sign in signs):
            return code, advice
    if not loss_is_finite:
        code, _, advice = _CAUSES[-1]
        return code, advice
    return None


def error_fields(problem: BaseException, *, loss_is_finite: bool = True) -> dict[str, Any]:
    """The fields of an `error` event."""
    kind = type(problem)
    type_name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    message = _text(problem)
    trace = "".join(traceback.format_exception(problem))
    if len(trace) > _TRACEBACK_CHARACTERS:
        half = _TRACEBACK_CHARACTERS // 2
        trace = f"{trace[:half]}\n… {len(trace) - 2 * half} characters left out …\n{trace[-half:]}"
    fields: dict[str, Any] = {"type": type_name, "message": message, "traceback": trace}
    if isinstance(problem, CodedError):
        fields["code"] = problem.code
    if cause := likely_cause(type_name, message, loss_is_finite=loss_is_finite):
        fields["cause"], fields["advice"] = cause
    return fields


def _text(problem: BaseException) -> str:
    try:
        return str(problem)
    except Exception:  # noqa: BLE001 - somebody else's __str__; the record matters more than its wording
        return f"<{type(problem).__name__} without a readable message>"

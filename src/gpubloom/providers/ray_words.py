"""What Ray's client raises and Ray's jobs end with, in the vocabulary of all places."""

import re
from collections.abc import Sequence

from gpubloom.providers.faults import Fault, FaultKind

_STATUS = re.compile(r"status code (\d{3})")
_LONGEST_REMARK = 300
_KINDS: dict[int, FaultKind] = {
    401: "bad_credentials",
    403: "bad_credentials",
    404: "gone",
    408: "timed_out",
    429: "rate_limited",
    502: "unavailable",
    503: "unavailable",
    504: "timed_out",
}
# Of a job whose node, and not whose command, ended it.
_LOST = ("node", "supervisor actor", "actor died", "worker died", "preempted", "head")


def fault_of(problem: BaseException, doing: str, hide: Sequence[str] = ()) -> Fault:
    """The fault of a call; its words hold nothing of `hide`."""
    remark = str(problem)
    for secret in hide:
        remark = remark.replace(secret, "…") if secret else remark
    remark = " ".join(remark.split())[:_LONGEST_REMARK]
    kind = _kind(problem)
    return Fault(
        kind, f"The Ray cluster did not {doing}: {remark}", uncertain=kind in {"timed_out", "unavailable"}
    )


def has_gone(problem: BaseException) -> bool:
    return _kind(problem) == "gone"


def was_lost(message: str) -> bool:
    """Whether a failed job was taken away, as far as Ray's message tells."""
    words = message.lower()
    return "exit code" not in words and any(sign in words for sign in _LOST)


def _kind(problem: BaseException) -> FaultKind:
    if (found := _STATUS.search(str(problem))) is not None:
        return _KINDS.get(int(found[1]), "refused")
    name = type(problem).__name__
    if name == "AuthenticationError":
        return "bad_credentials"
    if "Timeout" in name:
        return "timed_out"
    if isinstance(problem, ConnectionError | OSError) or "ConnectionError" in name:
        return "unavailable"
    return "refused"

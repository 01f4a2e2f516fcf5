"""What Modal's SDK raises, in our vocabulary of faults."""

from collections.abc import Iterable

from gpubloom.providers.faults import Fault, FaultKind

_LONGEST_SAID = 300


class SaidNothing(Exception):
    """No answer within the time that was given."""


def raised_by_calls() -> tuple[type[Exception], ...]:
    """What a call of the SDK can end with: its own exceptions, and those of the connection below."""
    import modal
    from grpclib import GRPCError
    from grpclib.exceptions import StreamTerminatedError
    from h2.exceptions import H2Error

    return SaidNothing, modal.exception.Error, GRPCError, StreamTerminatedError, H2Error, OSError


def modal_fault(problem: Exception, doing: str, hidden: Iterable[str]) -> Fault:
    """`doing` completes "Modal could not …". `hidden`: what must not be repeated, whoever says it."""
    import modal

    said = _said(problem, hidden)
    known = modal.exception
    if isinstance(problem, known.AuthError):
        return Fault(
            "bad_credentials",
            "Modal does not accept this token. Make one at modal.com/settings/tokens and connect again.",
        )
    if isinstance(problem, known.ResourceExhaustedError):
        return Fault(_exhausted(said), f"Modal could not {doing}: {said}")
    if isinstance(problem, SaidNothing | known.TimeoutError | TimeoutError):
        return Fault("timed_out", f"Modal could not {doing} in time.", uncertain=True)
    if isinstance(problem, known.NotFoundError):
        return Fault("gone", f"Modal could not {doing}: {said}")
    unreachable = (known.ServiceError, known.InternalError, known.InternalFailure, known.ConnectionError,
                   known.DataLossError, known.ClientClosed)  # fmt: skip
    # What is no exception of Modal's comes from the connection below it.
    if isinstance(problem, unreachable) or not isinstance(problem, known.Error):
        return Fault("unavailable", f"Modal cannot be reached at the moment to {doing}.", uncertain=True)
    if isinstance(problem, known.PermissionDeniedError):
        return Fault("refused", f"This Modal token does not allow to {doing}: {said}")
    return Fault("refused", f"Modal could not {doing}: {said}")


def _exhausted(said: str) -> FaultKind:
    """One status stands for three things; only the words tell them apart."""
    lower = said.lower()
    if "capacity" in lower:
        return "no_capacity"
    if "rate limit" in lower or "too many requests" in lower:
        return "rate_limited"
    return "quota"


def _said(problem: Exception, hidden: Iterable[str]) -> str:
    text = " ".join(str(problem).split()) or type(problem).__name__
    for secret in hidden:
        if secret:
            text = text.replace(secret, "…")
    return text if len(text) <= _LONGEST_SAID else f"{text[:_LONGEST_SAID]}…"

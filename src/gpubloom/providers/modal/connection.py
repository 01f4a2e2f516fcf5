"""A connection to Modal of one person: its own client, calls with a time limit, errors as faults."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from gpubloom.providers.cloud import Fault, FaultKind, remark_of

if TYPE_CHECKING:
    import modal

Result = TypeVar("Result")

_APP = "gpubloom"
# By which a sandbox is found again.
KEY_TAG = "gpubloom-key"


@dataclass(frozen=True)
class TimeLimits:
    """How long to wait, in seconds: for an answer, for an image with its packages, for a free machine, for
    the SDK to clean up what was given up, and before each look for what an answer that was lost meant."""

    answer: float = 30.0
    image: float = 1_800.0
    machine: float = 300.0
    clean_up: float = 10.0
    look_again: tuple[float, ...] = (0.0, 1.0, 3.0)


class ModalConnection:
    """Opened by the first call. The token is this object's only: nothing is read from or put into the
    process's environment, so that many people's connections stand side by side."""

    def __init__(self, token_id: str, token_secret: str, environment: str | None, limits: TimeLimits) -> None:
        self.limits = limits
        self._token = token_id, token_secret
        self._environment = environment
        self._opening = asyncio.Lock()
        self._client: modal.Client | None = None

    async def client(self) -> "modal.Client":
        import modal

        async with self._opening:
            if self._client is None:
                # The compression of headers tells each of them to its log, the token among them.
                logging.getLogger("hpack").setLevel(logging.WARNING)
                self._client = await self.ask(
                    "open a connection", modal.Client.from_credentials.aio(*self._token)
                )
            return self._client

    async def app(self, *, create: bool) -> "modal.App | None":
        """What holds our sandboxes; None: nothing was ever started."""
        import modal

        looking = modal.App.lookup.aio(
            _APP, client=await self.client(), environment_name=self._environment, create_if_missing=create
        )
        try:
            return await self.ask("open the app for the sandboxes", looking)
        except Fault as fault:
            if fault.kind == "gone" and not create:
                return None
            raise

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            closing: Awaitable[None] = client.__aexit__(None, None, None)  # type: ignore[no-untyped-call]
            # What is not closed in time is closed by its other end.
            with contextlib.suppress(Fault):
                await self.ask("close the connection", closing)

    async def ask(self, doing: str, call: Awaitable[Result], *, seconds: float | None = None) -> Result:
        """Fault for whatever goes wrong; `doing` completes "Modal could not …"."""
        try:
            return await self.within(seconds or self.limits.answer, call)
        except raised_by_calls() as problem:
            raise self.fault(problem, doing) from None

    def fault(self, problem: Exception, doing: str, *hidden: str) -> Fault:
        return modal_fault(problem, doing, (*hidden, *self._token))

    async def within(self, seconds: float, call: Awaitable[Result]) -> Result:
        """Like asyncio.timeout, but never waits for a call that cannot be cancelled."""
        task = asyncio.ensure_future(call)
        try:
            await asyncio.wait({task}, timeout=seconds)
            if not task.done():
                raise SaidNothing
            return task.result()
        finally:
            if not task.done():
                give_up(task)


def give_up(task: "asyncio.Future[Result]") -> None:
    """Cancel the call. Nothing waits for it any more, so its exception is ignored."""
    task.cancel()
    task.add_done_callback(lambda done: None if done.cancelled() else done.exception())


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
    """`doing` completes "Modal could not …". `hidden`: secrets that must not appear in the message."""
    import modal

    said = remark_of(str(problem), hidden) or type(problem).__name__
    known = modal.exception
    if isinstance(problem, known.AuthError):
        return Fault(
            "bad_credentials",
            "Modal does not accept this token. Create a token at modal.com/settings/tokens and "
            "connect again.",
        )
    if isinstance(problem, known.ResourceExhaustedError):
        kind = _exhausted(said)
        return Fault(kind, f"Modal could not {doing}: {said.rstrip('.')}. {_NEXT_STEP[kind]}")
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
        step = "Use a token of a member who may run apps in this workspace."
        return Fault("refused", f"This Modal token is not allowed to {doing}: {said.rstrip('.')}. {step}")
    return Fault("refused", f"Modal could not {doing}: {said}")


_NEXT_STEP: dict[FaultKind, str] = {
    "no_capacity": "Wait, or choose another offer.",
    "rate_limited": "The request is retried later.",
    "inactive_account": "Complete the payment details or raise the spending limit at modal.com/settings, "
    "then resume the job.",
    "quota": "Raise the limit of your workspace at modal.com/settings, or choose another offer.",
}


def _exhausted(said: str) -> FaultKind:
    """One status has four meanings; only the message tells them apart."""
    lower = said.lower()
    if any(word in lower for word in ("billing", "payment", "spend limit", "spending limit", "balance")):
        return "inactive_account"
    if "capacity" in lower:
        return "no_capacity"
    if "rate limit" in lower or "too many requests" in lower:
        return "rate_limited"
    return "quota"

"""What can go wrong at a service, in one vocabulary for all of them."""

from typing import Literal

from gpubloom.providers.base import ProviderError

FaultKind = Literal[
    "no_capacity", "quota", "bad_credentials", "rate_limited", "unavailable", "timed_out", "refused", "gone"
]

# Waiting may help by itself; the others need a person, or another offer.
_PASSES: frozenset[FaultKind] = frozenset({"no_capacity", "rate_limited", "unavailable", "timed_out"})


class Fault(ProviderError):
    """A service could not do what was asked. The text is a sentence for the person who owns the job; it holds
    no credential and no presigned address.

    `uncertain`: the request may have been carried out all the same, because its answer never came.
    """

    def __init__(
        self,
        kind: FaultKind,
        sentence: str,
        *,
        retry_after_seconds: float | None = None,
        uncertain: bool = False,
    ) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.retry_after_seconds = retry_after_seconds
        self.uncertain = uncertain

    @property
    def passes(self) -> bool:
        """Whether trying again later can help."""
        return self.kind in _PASSES

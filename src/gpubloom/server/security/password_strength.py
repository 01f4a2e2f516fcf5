"""How easily a password is guessed, by zxcvbn, and what to do about it in plain words.

Length is what helps, so there are no composition rules. zxcvbn knows what people try first: common passwords,
words, names, dates, keyboard rows, and what the person's own name and address suggest.
"""

import re
from dataclasses import dataclass

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from gpubloom.server.problems import InvalidInput

SHORTEST, LONGEST = 10, 128
# Of 0 to 4. From 3 on, a password withstands 10^8 guesses.
LOWEST_SCORE = 3

# zxcvbn's time grows with the cube of the length: 0.7 s at worst for this many characters. A password whose
# beginning is strong is strong.
_RATED_CHARACTERS = 72

# Ratings that run at once.
_AT_ONCE = 2
_limiter: RunVar[anyio.CapacityLimiter] = RunVar("password-strength")


@dataclass(frozen=True)
class Strength:
    """A password's score from 0 to 4, and why it is refused, as sentences; None if it is acceptable."""

    score: int
    advice: str | None


async def rate_password(password: str, *, email: str = "", name: str = "") -> Strength:
    """The strength of a password for the person with this address and name."""
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(_AT_ONCE)
        _limiter.set(limiter)
    return await anyio.to_thread.run_sync(_rate, password, email, name, limiter=limiter)


async def refuse_weak_password(field: str, password: str, *, email: str = "", name: str = "") -> None:
    """Raise with advice, about this field of the request, unless the password is acceptable."""
    strength = await rate_password(password, email=email, name=name)
    if strength.advice is not None:
        raise InvalidInput.for_field(field, strength.advice, code="weak_password")


def _rate(password: str, email: str, name: str) -> Strength:
    if len(password) < SHORTEST:
        return Strength(score=0, advice=f"Use at least {SHORTEST} characters.")
    if len(password) > LONGEST:
        return Strength(score=0, advice=f"Use at most {LONGEST} characters.")
    # Imported here: its word lists take 30 ms to read, and most processes never need them.
    from zxcvbn import zxcvbn

    rated = zxcvbn(password[:_RATED_CHARACTERS], user_inputs=_personal(email, name))
    score = int(rated["score"])
    if score >= LOWEST_SCORE:
        return Strength(score=score, advice=None)
    if any(match.get("dictionary_name") == "user_inputs" for match in rated["sequence"]):
        reason = "This password contains your name, your email address or the name of this program."
    else:
        reason = rated["feedback"]["warning"] or "This password is easy to guess."
    suggestions = rated["feedback"]["suggestions"] or ["Add another word or two. Uncommon words are better."]
    return Strength(score=score, advice=" ".join([reason, *suggestions]))


def _personal(email: str, name: str) -> list[str]:
    """What somebody who knows the person tries first."""
    parts, names = re.split(r"[@.]", email), name.split()
    joined = [mark.join(names) for mark in ("", ".", "-", "_", " ")]
    return [text for text in (email, *parts, *names, *joined, "gpubloom", "bloom") if text]

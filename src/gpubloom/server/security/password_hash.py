"""Passwords: what is acceptable, and argon2id off the event loop.

Length is what helps, so there are no composition rules; what everybody tries first is refused.
"""

from itertools import pairwise
from pathlib import Path

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar
from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher

SHORTEST, LONGEST = 10, 128

# OWASP's minimum for argon2id: 19 MiB, two passes, one lane; about 80 ms on a small machine.
_hasher = PasswordHash((Argon2Hasher(memory_cost=19 * 1024, time_cost=2, parallelism=1),))

# Hashes that run at once: bounds the memory that a flood of sign-ins can take.
_AT_ONCE = 4
_limiter: RunVar[anyio.CapacityLimiter] = RunVar("argon2")

_common: frozenset[str] | None = None


def weakness(password: str, *, email: str = "", name: str = "") -> str | None:
    """Why a password is refused, as a sentence; None if it is acceptable."""
    global _common
    if len(password) < SHORTEST:
        return f"Use at least {SHORTEST} characters."
    if len(password) > LONGEST:
        return f"Use at most {LONGEST} characters."
    folded = password.casefold()
    if _common is None:
        _common = frozenset((Path(__file__).parent / "common_passwords.txt").read_text().split())
    if folded in _common or len(set(folded)) <= 2 or _is_sequence(folded):
        return "This password is too common. Use a few unrelated words."
    for personal in (email.casefold(), email.casefold().partition("@")[0], name.casefold()):
        if len(personal) >= 4 and personal in folded and len(folded) - len(personal) < 6:
            return "This password is too similar to your name or email address. Use a few unrelated words."
    return None


def _is_sequence(text: str) -> bool:
    steps = {ord(after) - ord(before) for before, after in pairwise(text)}
    return steps in ({1}, {-1})


def _threads() -> anyio.CapacityLimiter:
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(_AT_ONCE)
        _limiter.set(limiter)
    return limiter


async def hash_password(password: str) -> str:
    """The argon2id hash to store."""
    return await anyio.to_thread.run_sync(_hasher.hash, password, limiter=_threads())


async def check_password(password: str, stored: str | None) -> tuple[bool, str | None]:
    """Whether the password fits, and a fresh hash when the stored one is of older strength.

    Without a stored hash the same work is done in vain, so that timing does not tell who has an account.
    """

    def verify() -> tuple[bool, str | None]:
        if stored is None:
            _hasher.hash(password)
            return False, None
        return _hasher.verify_and_update(password, stored)

    return await anyio.to_thread.run_sync(verify, limiter=_threads())

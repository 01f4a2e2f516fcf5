"""Hashing passwords with argon2id, off the event loop. `password_strength` says which are acceptable."""

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar
from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher

# OWASP's minimum for argon2id: 19 MiB, two passes, one lane; about 80 ms on a small machine.
_hasher = PasswordHash((Argon2Hasher(memory_cost=19 * 1024, time_cost=2, parallelism=1),))

# Hashes that run at once: bounds the memory that a flood of sign-ins can take.
_AT_ONCE = 4
_limiter: RunVar[anyio.CapacityLimiter] = RunVar("argon2")


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

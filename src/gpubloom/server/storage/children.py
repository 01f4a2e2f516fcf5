"""Child processes that look at strangers' files and run their templates, so that the server need not.

A child gets one JSON request on its input and answers with lines of JSON. It knows no secrets: there are
none in its environment. It can be ended at any moment. Before it touches what strangers made, it confines
itself to its own inputs with `confine_reader`, by the policy in its request (`sandbox`).
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from gpubloom.sandbox.landlock import Policy, landlock_version

# What Python and its libraries need; settings and passwords are not among it.
_PASSED_ON = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV"),
    *("HF_ENDPOINT", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "BLOOM_EGRESS_ALLOW"),
)
# Settings of the hub's library; its tokens have other names.
_PREFIX_PASSED_ON = "HF_HUB_"
_LONGEST_LINE = 32 << 20
# asyncio stops reading from a pipe at twice its limit. With the piece on its way and the buffer of the
# connection (64 KiB), a slow client holds less than 256 KiB of this process.
_PIECE = 32 << 10
# A template is stopped after one second. If it cannot be, the kernel ends the process.
TEMPLATE_CPU_SECONDS = 2.0
_told_about = set[Policy]()


class ChildFailed(Exception):
    """A child process that ended without an answer; says how."""


class ChildTookTooLong(ChildFailed):
    """A child that was ended because its time was over."""


class TemplateTookTooLong(ChildFailed):
    """A child that the kernel ended because a chat template did not stop."""


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON or name.startswith(_PREFIX_PASSED_ON)
    }


def _check_confinement(policy: Policy) -> None:
    """Say once that children are not confined; refuse to start one where the operator requires it."""
    if policy == "off" or landlock_version() > 0:
        return
    if policy == "require":
        raise ChildFailed(
            "This server cannot confine the process that reads files, because its kernel has no Landlock. "
            "The operator can use Linux 5.13 or later, or set BLOOM_SANDBOX=prefer."
        )
    if policy not in _told_about:
        _told_about.add(policy)
        # A child imports this module too, and starts faster without it.
        import structlog

        structlog.get_logger("bloom.storage").warning(
            "readers_not_confined", reason="this kernel has no Landlock (Linux 5.13 or later)"
        )


@contextlib.asynccontextmanager
async def started(
    module: str, request: dict[str, Any], *, buffered: int = _LONGEST_LINE
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A child of one of our modules that has its request; it is gone when the block ends."""
    _check_confinement(request["sandbox"])
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", module),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=_environment() | {"MALLOC_ARENA_MAX": "2", "TOKENIZERS_PARALLELISM": "false"},
        start_new_session=True,
        limit=buffered,
    )
    try:
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            child.stdin.write(json.dumps(request).encode())
            await child.stdin.drain()
        child.stdin.close()
        yield child
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        # Shielded: a child that was ended must also be waited for when this task is.
        await asyncio.shield(asyncio.ensure_future(child.wait()))


async def answers(
    module: str, request: dict[str, Any], *, seconds: float
) -> AsyncGenerator[dict[str, Any], None]:
    """All answers of a child process, line by line. Raises if it fails or takes too long."""
    async with started(module, request) as child:
        assert child.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                async for line in child.stdout:
                    yield json.loads(line)
                status = await child.wait()
        except TimeoutError as error:
            raise ChildTookTooLong(f"The process took longer than {seconds:,.0f} seconds.") from error
        except ValueError as error:
            raise ChildFailed("The process sent an unreadable answer.") from error
    if status == -signal.SIGPROF:
        raise TemplateTookTooLong("The chat template runs too long and was stopped.")
    if status != 0:
        raise ChildFailed(
            f"The process was ended by signal {-status}."
            if status < 0
            else f"The process ended with exit code {status}."
        )


async def answer(module: str, request: dict[str, Any], *, seconds: float) -> dict[str, Any]:
    """The last answer of a child process."""
    last: dict[str, Any] | None = None
    async for said in answers(module, request, seconds=seconds):
        last = said
    if last is None:
        raise ChildFailed("The process sent no answer.")
    return last


async def output(module: str, request: dict[str, Any]) -> AsyncIterator[bytes]:
    """The output of a child process, without a time limit. Closing the iterator ends the process."""
    async with started(module, request, buffered=_PIECE) as child:
        assert child.stdout is not None
        while piece := await child.stdout.read(_PIECE):
            yield piece
        if await child.wait() != 0:
            raise ChildFailed("The process ended before the output was complete.")

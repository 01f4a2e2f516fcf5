"""Child processes that look at strangers' files and run their templates, so that the server need not.

A child gets one JSON request on its input and answers with lines of JSON; a kept child gets several, all of
one person. It knows no secrets: there are none in its environment. It can be ended at any moment. Before it
touches what strangers made, it confines itself to its own inputs with `confine_reader`, by the policy in its
request (`sandbox`).
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Self

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
    child = await _spawned(module, request["sandbox"], buffered)
    try:
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            child.stdin.write(json.dumps(request).encode())
            await child.stdin.drain()
        child.stdin.close()
        yield child
    finally:
        await _ended(child)


async def _spawned(module: str, policy: Policy, buffered: int) -> asyncio.subprocess.Process:
    _check_confinement(policy)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", module),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=_environment() | {"MALLOC_ARENA_MAX": "2", "TOKENIZERS_PARALLELISM": "false"},
        start_new_session=True,
        limit=buffered,
    )


async def _ended(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    # Shielded: a child that was ended must also be waited for when this task is.
    await asyncio.shield(asyncio.ensure_future(child.wait()))


class KeptChild:
    """A child that answers one line for each line it is asked, one question at a time.

    After a failed question it must be ended: its answer could come late.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.busy_seconds = 0.0

    @classmethod
    async def start(cls, module: str, setup: dict[str, Any], *, longest_answer: int) -> Self:
        """`setup` is the first line of its input, with the policy as `sandbox`."""
        child = cls(await _spawned(module, setup["sandbox"], longest_answer))
        child._write(setup)
        return child

    async def ask(self, request: dict[str, Any], *, seconds: float) -> dict[str, Any]:
        """The answer. Raises if the child fails or takes too long."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        began = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self._write(request)
                    await self._process.stdin.drain()
                if line := await self._process.stdout.readline():
                    answer = json.loads(line)
                else:
                    raise ChildFailed(_how_it_ended(await self._process.wait()))
        except TimeoutError as error:
            raise ChildTookTooLong(f"The process took longer than {seconds:,.0f} seconds.") from error
        except (ValueError, RecursionError) as error:
            raise ChildFailed("The process sent an unreadable answer.") from error
        if not isinstance(answer, dict):
            raise ChildFailed("The process sent an unreadable answer.")
        self.busy_seconds += time.monotonic() - began
        return answer

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def end(self) -> None:
        await _ended(self._process)

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")


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
        except (ValueError, RecursionError) as error:
            raise ChildFailed("The process sent an unreadable answer.") from error
    if status == -signal.SIGPROF:
        raise TemplateTookTooLong("The chat template runs too long and was stopped.")
    if status != 0:
        raise ChildFailed(_how_it_ended(status))


def _how_it_ended(status: int) -> str:
    if status < 0:
        return f"The process was ended by signal {-status}."
    return f"The process ended with exit code {status}."


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

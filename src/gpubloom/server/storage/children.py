"""Child processes that look at strangers' files and run their templates, so that the server need not.

A child gets one JSON request on its input and answers with lines of JSON. It knows no secrets: there are
none in its environment. It can be ended at any moment. Before it touches what strangers made, it bounds
itself with `bound_this_process`. Standard library only: a child imports this first, and starts fast.
"""

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

# Address space, not memory in use: libraries reserve much more than they touch.
_ADDRESS_BYTES = 6 << 30

# What Python and its libraries need; settings and passwords are not among it.
_PASSED_ON = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV"),
    *("HF_ENDPOINT", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "BLOOM_EGRESS_ALLOW"),
)
# Settings of the hub's library; its tokens have other names.
_PREFIX_PASSED_ON = "HF_HUB_"
_LONGEST_LINE = 64 << 20
_READ = 1 << 18


def bound_this_process(*, cpu_seconds: int, politely: bool = False) -> None:
    """No more than so much memory and time; no core files; `politely` lets everything else go first."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = _ADDRESS_BYTES if most == resource.RLIM_INFINITY else min(_ADDRESS_BYTES, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if politely:
        os.nice(10)


class ChildFailed(Exception):
    """A child process that ended without an answer; says how."""


class ChildTookTooLong(ChildFailed):
    """A child that was ended because its time was over."""


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON or name.startswith(_PREFIX_PASSED_ON)
    }


@contextlib.asynccontextmanager
async def started(module: str, request: dict[str, Any]) -> AsyncIterator[asyncio.subprocess.Process]:
    """A child of one of our modules that has its request; it is gone when the block ends."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", module),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=_environment() | {"MALLOC_ARENA_MAX": "2", "TOKENIZERS_PARALLELISM": "false"},
        start_new_session=True,
        limit=_LONGEST_LINE,
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
    async with started(module, request) as child:
        assert child.stdout is not None
        while piece := await child.stdout.read(_READ):
            yield piece
        if await child.wait() != 0:
            raise ChildFailed("The process ended before the output was complete.")

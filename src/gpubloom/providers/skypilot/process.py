"""SkyPilot in a Python of its own, asked through a pipe; its errors as faults.

SkyPilot needs a hundred packages that conflict with ours, and takes seconds to import: its process is started
by the first request and stays. It ends when its end of the pipe closes, so also when we are killed. Its
exceptions arrive by name.
"""

import asyncio
import contextlib
import json
import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpubloom.providers.cloud import Fault, FaultKind, remark_of

# Where the operator says which Python has SkyPilot, and with that, that people may rent through it.
PYTHON_VARIABLE = "BLOOM_SKYPILOT_PYTHON"

_BRIDGE = Path(__file__).with_name("bridge.py")
# Run as a file it would have our folder on its path, and find our modules where it looks for SkyPilot's.
_START = "import sys; path = sys.argv[1]; exec(compile(open(path).read(), path, 'exec'))"
_LONGEST_LINE = 32 * 1024 * 1024


@dataclass(frozen=True)
class TimeLimits:
    """Seconds: until the first answer, which may start a server on this machine; for every other one; for
    quick news of a launch; for a cluster to be terminated; and between two looks."""

    first_answer: float = 180.0
    answer: float = 90.0
    launch: float = 60.0
    down: float = 180.0
    look: float = 2.0


class SkyPilotProcess:
    """One person's. Questions are asked one after the other; each raises Fault."""

    def __init__(self, python: str, token: str | None, limits: TimeLimits) -> None:
        self.limits = limits
        self._python = python
        self._token = token
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._listener: asyncio.Task[None] | None = None
        self._last_words: deque[str] = deque(maxlen=5)
        self._asked = 0

    async def ask(self, verb: str, hidden: Sequence[str] = (), **arguments: Any) -> Any:
        """`hidden`: secrets among the arguments, which no fault repeats."""
        async with self._turn:
            seconds = self.limits.answer
            if self._process is None or self._process.returncode is not None:
                await self._start()
                seconds = self.limits.first_answer
            try:
                answer = await asyncio.wait_for(self._answer(verb, arguments), seconds)
            except TimeoutError:
                # It may hang for good, and would hold up every later question.
                await self._end()
                raise Fault(
                    "timed_out", f"SkyPilot did not answer within {seconds:.0f} seconds.", uncertain=True
                ) from None
            if answer is None:
                await self._end()
                words = " ".join(self._last_words)
                raise skypilot_fault({"types": ["ConnectionError"], "text": words}, self._hidden(hidden))
        if "problem" in answer:
            raise skypilot_fault(answer["problem"], self._hidden(hidden))
        return answer["result"]

    async def close(self) -> None:
        async with self._turn:
            await self._end()

    def _hidden(self, also: Sequence[str]) -> tuple[str, ...]:
        return *also, self._token or ""

    async def _start(self) -> None:
        await self._end()
        # Our own settings are secrets to others; what SkyPilot and its clouds need is the operator's.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BLOOM_")}
        environment["SKYPILOT_DISABLE_USAGE_COLLECTION"] = "1"
        if self._token:
            environment["SKYPILOT_SERVICE_ACCOUNT_TOKEN"] = self._token
        try:
            self._process = await asyncio.create_subprocess_exec(
                self._python,
                "-c",
                _START,
                str(_BRIDGE),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=_LONGEST_LINE,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        except OSError as problem:
            raise Fault(
                "refused", f"SkyPilot's Python ({self._python}) cannot be started: {problem.strerror}."
            ) from None
        self._last_words.clear()
        self._listener = asyncio.create_task(self._listen(self._process))

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Read stderr all the time, so that SkyPilot never blocks. The last lines explain a sudden end."""
        assert process.stderr is not None
        while block := await process.stderr.read(65_536):
            self._last_words.extend(block.decode(errors="replace").splitlines()[-5:])

    async def _answer(self, verb: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        self._asked += 1
        question = {"id": self._asked, "verb": verb, "arguments": arguments}
        with contextlib.suppress(ConnectionError):
            process.stdin.write(json.dumps(question).encode() + b"\n")
            await process.stdin.drain()
        while line := await process.stdout.readline():
            answer: dict[str, Any] = json.loads(line)
            # An older one belongs to somebody who stopped waiting.
            if answer["id"] == self._asked:
                return answer
        return None

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 2)
        except TimeoutError:
            process.kill()
            await process.wait()
        if self._listener is not None:
            await self._listener


# The first that fits the exception or one that it is derived from.
_KINDS: dict[str, FaultKind] = {
    "NoCloudAccessError": "bad_credentials",
    "ApiServerAuthenticationError": "bad_credentials",
    "PermissionDeniedError": "bad_credentials",
    "InvalidCloudCredentials": "bad_credentials",
    "CloudUserIdentityError": "bad_credentials",
    "ClusterOwnerIdentityMismatchError": "bad_credentials",
    "KubeAPIUnreachableError": "unavailable",
    "ResourcesUnavailableError": "no_capacity",
    "ClusterDoesNotExist": "gone",
    "ClusterNotUpError": "gone",
    "ExecutionPoolFullError": "rate_limited",
    "ConcurrentWorkerExhaustedError": "rate_limited",
    "ApiServerConnectionError": "unavailable",
    "ServerTemporarilyUnavailableError": "unavailable",
    "RequestInterruptedError": "unavailable",
    "NetworkError": "unavailable",
    "FetchClusterInfoError": "unavailable",
    "ClusterStatusFetchingError": "unavailable",
    "ConnectionError": "unavailable",
    "Timeout": "unavailable",
    "HTTPError": "unavailable",
}


def skypilot_fault(problem: Mapping[str, Any], hidden: Iterable[str] = ()) -> Fault:
    """`problem`: as the bridge describes it. `hidden`: what must not be repeated."""
    said = remark_of(str(problem["text"]), hidden) or str(problem["types"][0])
    known = [_KINDS[name] for name in problem["types"] if name in _KINDS]
    kind: FaultKind = known[0] if known else "refused"
    if kind == "no_capacity" and "quota" in said.lower():
        kind = "quota"
    elif kind == "no_capacity" and not problem.get("tried"):
        # No cloud was asked: none of those that are set up has such a machine, or none that may be used.
        kind = "refused"
    if kind == "bad_credentials":
        return Fault(
            kind,
            f"SkyPilot is not allowed to do this: {said} Run `sky check` to see which clouds it can use.",
        )
    if kind == "unavailable":
        return Fault(kind, f"SkyPilot cannot be reached: {said}", uncertain=True)
    return Fault(kind, f"SkyPilot failed: {said}")

"""Asks confined processes about scripts. A process answers one person only, and several times.

Starting Python and its imports takes longer than reading a script, and the editor asks again after every
pause in typing. So a process waits a while for the next question of its person, and one that belongs to
nobody yet is kept ready for the next person.
"""

import asyncio
import contextlib
from typing import Annotated, Any, cast
from uuid import UUID

import structlog
from fastapi import Depends, Request
from pydantic import ValidationError

from gpubloom.sandbox.landlock import Policy
from gpubloom.scripts import Requirements, ScriptProblem
from gpubloom.server.accounts.principal import CurrentPrincipal
from gpubloom.server.accounts.shares import MOST_READERS, CurrentShares, Readers
from gpubloom.server.storage.children import ChildFailed, ChildTookTooLong, KeptChild

log = structlog.get_logger("bloom.scripts")

MODULE = "gpubloom.server.scripts.read_process"
# A script takes milliseconds, the largest notebook a few seconds.
SECONDS = 20.0
# A process that has worked this long is replaced, so that the kernel's limit never meets the wrong request.
_REPLACED_AFTER_SECONDS = 20.0
_IDLE_SECONDS = 60.0
_MEMORY_BYTES = 1 << 30
_LONGEST_ANSWER = 8 << 20


class ScriptProcesses:
    """The processes of one server: at work, waiting for their person, and one that is anybody's."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._waiting: list[tuple[UUID, KeptChild]] = []
        self._spare: KeptChild | None = None
        self._timers: dict[KeptChild, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, user_id: UUID, request: dict[str, Any]) -> dict[str, Any]:
        """The answer. ChildFailed: the process had to be ended, or ended by itself."""
        child = self._taken(user_id) or await self._new()
        try:
            answer = await child.ask(request, seconds=SECONDS)
        except BaseException:
            await child.end()
            raise
        self._later(self._keep(user_id, child))
        return answer

    async def close(self) -> None:
        """End all processes."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        children = [child for _, child in self._waiting] + ([self._spare] if self._spare else [])
        self._waiting, self._spare = [], None
        for child in children:
            await self._end(child)

    def _taken(self, user_id: UUID) -> KeptChild | None:
        for position, (owner, child) in enumerate(self._waiting):
            if owner == user_id and child.is_running:
                del self._waiting[position]
                self._timers.pop(child).cancel()
                return child
        spare, self._spare = self._spare, None
        return spare if spare is not None and spare.is_running else None

    async def _new(self) -> KeptChild:
        setup = {
            "sandbox": self._policy,
            "cpu_seconds": int(SECONDS + _REPLACED_AFTER_SECONDS),
            "memory_bytes": _MEMORY_BYTES,
        }
        return await KeptChild.start(MODULE, setup, longest_answer=_LONGEST_ANSWER)

    async def _keep(self, user_id: UUID, child: KeptChild) -> None:
        if child.busy_seconds > _REPLACED_AFTER_SECONDS:
            await child.end()
        else:
            self._waiting.append((user_id, child))
            forget = asyncio.get_running_loop().call_later
            self._timers[child] = forget(_IDLE_SECONDS, lambda: self._later(self._forget(child)))
            if len(self._waiting) > MOST_READERS:
                await self._forget(self._waiting[0][1])
        if self._spare is None:
            # Who comes next starts one, and is told what is wrong.
            with contextlib.suppress(ChildFailed, OSError):
                self._spare = await self._new()

    async def _forget(self, child: KeptChild) -> None:
        if child in self._timers:
            self._waiting = [(owner, each) for owner, each in self._waiting if each is not child]
            await self._end(child)

    async def _end(self, child: KeptChild) -> None:
        if timer := self._timers.pop(child, None):
            timer.cancel()
        await child.end()

    def _later(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class ScriptReader:
    """Reads scripts for one person, within their share. ScriptProblem: a script that cannot be read."""

    def __init__(self, processes: ScriptProcesses, readers: Readers, user_id: UUID) -> None:
        self._processes = processes
        self._readers = readers
        self._user_id = user_id

    async def requirements(self, script: str, files: dict[str, str], arguments: list[str]) -> Requirements:
        found = await self._ask("requirements", script=script, files=files, arguments=arguments)
        try:
            return Requirements.model_validate(found)
        except ValidationError:
            raise _unread("It sent an unreadable answer.") from None

    async def script_of(self, notebook: str) -> str:
        return await self._text("from_notebook", notebook=notebook)

    async def notebook_of(self, script: str) -> str:
        return await self._text("to_notebook", script=script)

    async def colab_notebook(self, **fields: Any) -> str:
        return await self._text("colab_notebook", **fields)

    async def _text(self, action: str, **fields: Any) -> str:
        found = await self._ask(action, **fields)
        if not isinstance(found, str):
            raise _unread("It sent an unreadable answer.")
        return found

    async def _ask(self, action: str, **fields: Any) -> Any:
        async with self._readers.hold(self._user_id):
            try:
                answer = await self._processes.ask(self._user_id, {"action": action, **fields})
            except ChildTookTooLong:
                log.warning("script_reader_stopped", user=str(self._user_id), action=action)
                raise ScriptProblem(
                    "script_took_too_long",
                    f"Reading the script took longer than {SECONDS:g} seconds and was stopped. Split long "
                    "notebook cells, and move data from the script into a separate file.",
                ) from None
            except ChildFailed as failure:
                log.warning(
                    "script_reader_failed", user=str(self._user_id), action=action, reason=str(failure)
                )
                raise _unread(str(failure)) from None
        if "refused" in answer:
            raise ScriptProblem(str(answer.get("code")), str(answer["refused"]))
        return answer.get("result")


def _unread(reason: str) -> ScriptProblem:
    return ScriptProblem("script_not_read", f"The process that reads scripts did not finish. {reason}")


def _script_reader(request: Request, principal: CurrentPrincipal, shares: CurrentShares) -> ScriptReader:
    processes = cast("ScriptProcesses", request.app.state.script_processes)
    return ScriptReader(processes, shares.readers, principal.id)


CurrentScriptReader = Annotated[ScriptReader, Depends(_script_reader)]

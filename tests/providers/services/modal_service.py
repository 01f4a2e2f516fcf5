"""Modal, as far as its own SDK can tell: a gRPC server on the loopback address whose sandboxes really run.

Requests and answers are Modal's published messages (`modal_proto`), so what does not fit them does not get
through. A name is unique among the sandboxes of an app that run; an idempotency key is not honoured, which is
the harder case for whoever asks twice.
"""

import asyncio
import os
import secrets
import string
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from grpclib import GRPCError
from grpclib.const import Status as Code
from grpclib.server import Server
from modal_proto import api_pb2

from tests.providers.services.machine import Machine
from tests.providers.services.modal_calls import ModalCalls, RouterCalls
from tests.providers.services.modal_volumes import Volumes

TOKEN_ID = "ak-bloomtests"
TOKEN_SECRET = "as-Hidden-Modal-Secret"

# What can be wrong with the next calls; as at HTTP services, and two more. `queued`: accepted, but no machine
# is ever free. `throttled`: the service says when to ask again, and the SDK does.
Trouble = Literal[
    "no_capacity",
    "queued",
    "quota",
    "bad_credentials",
    "rate_limited",
    "throttled",
    "unavailable",
    "refused",
    "hang",
    "late",
    "cut",
]
_OF_LAUNCHES: set[Trouble] = {"no_capacity", "queued", "quota", "refused", "late", "cut"}
Status = api_pb2.GenericResult


@dataclass
class Sandbox:
    """One container. `machine` is None as long as none is free."""

    id: str
    app_id: str
    definition: api_pb2.Sandbox
    tags: dict[str, str]
    created_at: float
    machine: Machine | None
    task_id: str = field(default_factory=lambda: _identifier("ta"))
    ended_as: "Status.GenericStatus.ValueType | None" = None

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def running(self) -> bool:
        """Billed, or about to be."""
        return self.ended_as is None and (self.machine is None or self.machine.running)

    @property
    def log(self) -> str:
        return "" if self.machine is None else self.machine.text


def _identifier(prefix: str) -> str:
    alphabet = string.ascii_letters + string.digits
    return f"{prefix}-{''.join(secrets.choice(alphabet) for _ in range(22))}"


class ModalService:
    """`with ModalService() as service:` then `service.url` is what MODAL_SERVER_URL should be."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.url = ""
        self.tokens = {TOKEN_ID: TOKEN_SECRET}
        self.sandboxes: dict[str, Sandbox] = {}
        self.apps: dict[str, str] = {}
        self.secrets: dict[str, dict[str, str]] = {}
        self.images: dict[str, list[str]] = {}
        self.layers: dict[tuple[str, ...], str] = {}
        # What each build of an image prints; empty: images are there at once.
        self.build_output: list[str] = []
        self.bases: dict[str, list[str]] = {}
        self.image_secrets: dict[str, list[dict[str, str]]] = {}
        # The names of all calls, in their order.
        self.calls: list[str] = []
        self._troubles: list[tuple[Trouble, str | None]] = []
        self._folder = tempfile.TemporaryDirectory(prefix="modal-")
        self.volumes = Volumes(Path(self._folder.name, "volumes"))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: Server | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self.volumes.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(10)
        return self

    async def _open(self) -> None:
        self._server = Server([ModalCalls(self), RouterCalls(self)])
        await self._server.start("127.0.0.1", 0)
        listener = self._server._server
        assert listener is not None
        self.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sandbox in self.sandboxes.values():
            if sandbox.machine is not None:
                sandbox.machine.vanish()
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        self.volumes.stop()
        self._folder.cleanup()

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0.05)

    # What a test does to it

    @property
    def environment(self) -> dict[str, str]:
        """Leads the SDK here."""
        return {"MODAL_SERVER_URL": self.url}

    @property
    def credentials(self) -> dict[str, str]:
        return {"token_id": TOKEN_ID, "token_secret": TOKEN_SECRET}

    def fail_next(self, trouble: Trouble, *, times: int = 1, calls: str | None = None) -> None:
        """The next calls of that name fail. None: any call, or any launch where only launches have such a
        trouble. When a service is unavailable the SDK asks four times by itself."""
        if calls is None and trouble in _OF_LAUNCHES:
            calls = "SandboxCreate"
        self._troubles += [(trouble, calls)] * times

    def recover(self) -> None:
        self._troubles.clear()

    def revoke(self) -> None:
        """The credentials are worth nothing any more."""
        self.tokens.clear()

    def preempt(self, sandbox_id: str) -> None:
        """Takes a sandbox away from one moment to the next."""
        self.end(self.sandboxes[sandbox_id], Status.GENERIC_STATUS_TERMINATED, grace_seconds=0)

    @property
    def running(self) -> list[Sandbox]:
        return [sandbox for sandbox in self.sandboxes.values() if self.refresh(sandbox).running]

    def billed_seconds(self, sandbox_id: str) -> float:
        machine = self.refresh(self.sandboxes[sandbox_id]).machine
        return 0.0 if machine is None else machine.billed_seconds

    def built_for(self, image_id: str) -> list[str]:
        """The commands of an image and of those it is built on, the last one first."""
        below = [command for base in self.bases[image_id] for command in self.built_for(base)]
        return [*self.images[image_id], *below]

    # What calls are made of

    def trouble(self, call: str) -> Trouble | None:
        for position, (_, calls) in enumerate(self._troubles):
            if calls in (None, call):
                return self._troubles.pop(position)[0]
        return None

    def create(self, request: api_pb2.SandboxCreateRequest, *, queued: bool) -> Sandbox:
        definition = request.definition
        identifier = _identifier("sb")
        environment: dict[str, str] = {}
        for secret_id in definition.secret_ids:
            environment.update(self.secrets[secret_id])
        machine = None
        if not queued:
            folder = Path(self._folder.name, identifier)
            # There are no mounts here: what names a mount path names the folder instead.
            for path, view in self.volumes.mount(definition, folder).items():
                environment = {name: text.replace(path, view) for name, text in environment.items()}
            environment["PATH"] = os.pathsep.join(
                [str(self.volumes.programs(folder)), str(Path(sys.executable).parent), os.environ["PATH"]]
            )
            machine = Machine(folder, definition.entrypoint_args, environment, clock=self.clock)
            machine.start()
        sandbox = Sandbox(
            identifier,
            request.app_id,
            definition,
            {tag.tag_name: tag.tag_value for tag in request.tags},
            self.clock(),
            machine,
        )
        self.sandboxes[identifier] = sandbox
        return sandbox

    def reload(self, task_id: str) -> None:
        sandbox = next((each for each in self.running if each.task_id == task_id), None)
        if sandbox is None:
            raise GRPCError(Code.NOT_FOUND, f"Task '{task_id}' not found.")
        self.volumes.reload(sandbox.definition, Path(self._folder.name, sandbox.id))

    def refresh(self, sandbox: Sandbox) -> Sandbox:
        """Notices that a sandbox has had its time."""
        late = self.clock() - sandbox.created_at > sandbox.definition.timeout_secs
        if late and sandbox.running:
            self.end(sandbox, Status.GENERIC_STATUS_TIMEOUT, grace_seconds=0)
        return sandbox

    def end(
        self, sandbox: Sandbox, status: "Status.GenericStatus.ValueType", *, grace_seconds: float
    ) -> None:
        if not sandbox.running:
            return
        sandbox.ended_as = status
        if sandbox.machine is not None:
            sandbox.machine.end(grace_seconds)

    def result(self, sandbox: Sandbox) -> api_pb2.GenericResult:
        self.refresh(sandbox)
        if sandbox.ended_as is not None:
            return Status(status=sandbox.ended_as)
        code = None if sandbox.machine is None else sandbox.machine.returncode
        if code is None:
            return Status()
        if code == 0:
            return Status(status=Status.GENERIC_STATUS_SUCCESS)
        # As a shell counts: 137 is SIGKILL.
        return Status(status=Status.GENERIC_STATUS_FAILURE, exitcode=code if code > 0 else 128 - code)

    def new_identifier(self, prefix: str) -> str:
        return _identifier(prefix)

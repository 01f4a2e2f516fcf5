"""A Volume of the person's own Modal account as the store of one job: nothing has to be set up for it.

The Volume is mounted in the sandbox of the job, so the agent reads and writes files there (`volume:`
addresses, `agent/remote/link.py`); this side reaches the same files over Modal's API. A Volume is no network
file system:

- The agent runs `sync` on the mount after each write. Only then does this side see the file.
- What this side writes is seen in a running sandbox once its volumes are reloaded. Reloading fails for a
  moment while the agent has a file open. It is tried again with every look, and never holds up what arrives.

Each job has a Volume of its own: a job cannot read the files of another one, and deleting the job's files
is deleting its Volume.
"""

import asyncio
import io
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from gpubloom.agent.remote.link import VOLUME_SCHEME
from gpubloom.providers.cloud import Fault
from gpubloom.providers.modal.connection import KEY_TAG, ModalConnection, TimeLimits
from gpubloom.storage.run_store import Method
from gpubloom.storage.store import StorageError, StoreRefused

if TYPE_CHECKING:
    import modal

Result = TypeVar("Result")

# Large files, such as a model, take a while.
_TRANSFER_SECONDS = 3600.0
_RELOAD_SECONDS = 20


def volume_name(key: str) -> str:
    """The Volume of a job, by the key of any of its attempts."""
    return key.rpartition("-a")[0]


class ModalVolumeStore:
    """The store of one attempt, by its key. `credentials` are read again after Modal refused them.

    Methods block and are called by one thread at a time. `close` it in the end.
    """

    def __init__(
        self, key: str, credentials: Callable[[], Mapping[str, str]], limits: TimeLimits | None = None
    ) -> None:
        self._key, self._credentials = key, credentials
        self._limits = limits or TimeLimits()
        self._runner = asyncio.Runner()
        self._lock = threading.Lock()
        self._modal: ModalConnection | None = None
        self._environment: str | None = None
        self._volume: modal.Volume | None = None
        self._sandbox: modal.Sandbox | None = None
        # Files that never change once they are there.
        self._bundle: set[str] | None = None
        # A sandbox that runs may not have seen what an earlier worker wrote.
        self._is_stale = True

    def put(self, name: str, content: bytes | Path | BinaryIO) -> None:
        source = io.BytesIO(content) if isinstance(content, bytes) else content
        self._call("store a file", lambda: self._upload({name: source}), seconds=_TRANSFER_SECONDS)
        self._is_stale = True
        with suppress(StorageError):
            self._refresh()

    def put_files(self, files: Mapping[str, Path]) -> None:
        if files:
            self._call("store the files of the job", lambda: self._upload(files), seconds=_TRANSFER_SECONDS)

    def get(self, name: str, *, most: int | None = None) -> bytes | None:
        async def read() -> bytes | None:
            volume = await self._open()
            content = bytearray()
            try:
                async for piece in volume.read_file.aio(name):
                    content += piece
                    if most is not None and len(content) > most:
                        return None
            except FileNotFoundError:
                return None
            return bytes(content)

        return self._call("read a file", read, seconds=_TRANSFER_SECONDS)

    def has(self, name: str) -> bool:
        folder, _, _ = name.rpartition("/")
        if not folder.endswith("/bundle"):
            return name in self.sizes(folder)
        if self._bundle is None:
            self._bundle = set(self.sizes(folder))
        return name in self._bundle

    def sizes(self, folder: str) -> dict[str, int]:
        with suppress(StorageError):
            self._refresh()

        async def look() -> dict[str, int]:
            import modal

            volume = await self._open()
            try:
                entries = await volume.listdir.aio(f"/{folder.strip('/')}", recursive=True)
            except (modal.exception.NotFoundError, FileNotFoundError):
                return {}
            return {
                entry.path.strip("/"): entry.size
                for entry in entries
                # Hidden until it is complete.
                if entry.type.name == "FILE" and not entry.path.rpartition("/")[2].startswith(".")
            }

        return self._call("list files", look)

    def delete(self, names: Sequence[str]) -> None:
        async def remove(name: str) -> None:
            volume = await self._open()
            with suppress(FileNotFoundError):
                await volume.remove_file.aio(name)

        for name in names:
            self._call("delete a file", partial(remove, name))

    def delete_folder(self, folder: str) -> None:
        """The whole Volume: it holds nothing else."""

        async def remove() -> None:
            import modal

            await modal.Volume.objects.delete.aio(
                volume_name(self._key),
                allow_missing=True,
                environment_name=self._environment,
                client=await self._connection().client(),
            )

        self._call("delete the files of a job", remove)
        self._volume = self._bundle = None

    def addresses(self, method: Method, names: Sequence[str], life_seconds: float) -> list[str]:
        """Names in the mounted Volume; they do not expire, and mean nothing anywhere else."""
        return [f"{VOLUME_SCHEME}{name}" for name in names]

    def close(self) -> None:
        with self._lock:
            self._runner.run(self._disconnect())
            self._runner.close()

    async def _upload(self, files: Mapping[str, Any]) -> None:
        volume = await self._open()
        async with volume.batch_upload.aio(force=True) as batch:
            for name, source in files.items():
                batch.put_file(source, f"/{name}")
        if self._bundle is not None:
            self._bundle.update(files)

    def _refresh(self) -> None:
        """Let a running sandbox see what was written. StorageError: not now; the next look tries again."""
        if not self._is_stale:
            return

        async def reload() -> None:
            import modal

            try:
                if self._sandbox is None:
                    self._sandbox = await self._find_sandbox()
                if self._sandbox is not None:
                    await self._sandbox.reload_volumes.aio(timeout=_RELOAD_SECONDS)
            except modal.exception.NotFoundError:
                # Without a sandbox nobody reads. One that starts later mounts the newest state.
                await self._drop_sandbox()

        self._call("show new files to the sandbox", reload)
        self._is_stale = False

    async def _find_sandbox(self) -> "modal.Sandbox | None":
        import modal

        connection = self._connection()
        app = await connection.app(create=False)
        if app is None:
            return None
        found = modal.Sandbox.list.aio(
            app_id=app.app_id, tags={KEY_TAG: self._key}, client=await connection.client()
        )
        return next(iter([sandbox async for sandbox in found]), None)

    def _connection(self) -> ModalConnection:
        if self._modal is None:
            values = self._credentials()
            self._environment = values.get("environment") or None
            self._modal = ModalConnection(
                values["token_id"], values["token_secret"], self._environment, self._limits
            )
        return self._modal

    async def _open(self) -> "modal.Volume":
        import modal

        if self._volume is None:
            client = await self._connection().client()
            volume = modal.Volume.from_name(
                volume_name(self._key),
                environment_name=self._environment,
                create_if_missing=True,
                version=2,
                client=client,
            )
            self._volume = await volume.hydrate.aio(client)
        return self._volume

    def _call(
        self, doing: str, call: Callable[[], Awaitable[Result]], *, seconds: float | None = None
    ) -> Result:
        with self._lock:
            try:
                connection = self._connection()
                return self._runner.run(connection.ask(doing, call(), seconds=seconds))
            except Fault as fault:
                if fault.kind in {"bad_credentials", "gone"}:
                    self._forget(fault)
                kind = StorageError if fault.passes or fault.kind == "gone" else StoreRefused
                raise kind(fault.kind, str(fault)) from fault
            except Exception as problem:
                # The SDK loads and stores blocks by another library, which raises its own exceptions.
                raise StorageError(
                    "store_unavailable", f"Modal could not {doing} ({type(problem).__name__})."
                ) from problem

    def _forget(self, fault: Fault) -> None:
        """The owner may have entered a new token, or deleted the Volume: both are read again."""
        self._volume = self._bundle = None
        if fault.kind == "bad_credentials":
            self._runner.run(self._disconnect())

    async def _drop_sandbox(self) -> None:
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            # It has a connection of its own.
            detaching: Awaitable[None] = sandbox.detach.aio()  # type: ignore[no-untyped-call]
            await detaching

    async def _disconnect(self) -> None:
        await self._drop_sandbox()
        connection, self._modal = self._modal, None
        if connection is not None:
            await connection.close()

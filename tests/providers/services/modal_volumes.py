"""Volumes of the fake Modal: files that were committed, and what a sandbox sees of them.

As with the real ones (version 2), a sandbox sees the state of its start until its volumes are reloaded, and
what it writes is in the volume only after `sync` on the mount. The final commit at the end of a sandbox is
left out, which is the harder case. Blocks of files are stored and read over HTTP.
"""

import fcntl
import hashlib
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from grpclib import GRPCError
from grpclib.const import Status as Code
from modal_proto import api_pb2

BLOCK = 8 << 20


class Volumes:
    """All volumes of one fake service. `folder`: where their files are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.names: dict[str, str] = {}
        # How many of the next reloads fail because a file is open.
        self.refused_reloads = 0
        self.reloads = 0
        self._blocks: dict[str, bytes] = {}
        blocks = self._blocks

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                blocks[self.path.rpartition("/")[2]] = content
                self._answer(b"stored")

            def do_GET(self) -> None:
                volume_id, _, rest = self.path.removeprefix("/files/").partition("/")
                number, _, name = rest.partition("/")
                with (folder / volume_id / name).open("rb") as file:
                    file.seek(int(number) * BLOCK)
                    self._answer(file.read(BLOCK))

            def _answer(self, content: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def files(self, name: str) -> list[str]:
        """What was committed to the volume of this name."""
        top = self._folder / self.names[name]
        return sorted(path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file())

    def get(self, volume_id: str) -> Path:
        if volume_id not in self.names.values():
            raise GRPCError(Code.NOT_FOUND, f"Volume '{volume_id}' not found.")
        return self._folder / volume_id

    def create(self, name: str, volume_id: str) -> None:
        self.names[name] = volume_id
        (self._folder / volume_id).mkdir(parents=True)

    def delete(self, volume_id: str) -> None:
        shutil.rmtree(self.get(volume_id))
        self.names = {name: known for name, known in self.names.items() if known != volume_id}

    def put(self, request: api_pb2.VolumePutFiles2Request) -> api_pb2.VolumePutFiles2Response:
        top, answer = self.get(request.volume_id), api_pb2.VolumePutFiles2Response()
        for index, file in enumerate(request.files):
            for number, block in enumerate(file.blocks):
                digest = block.contents_sha256.hex()
                known = self._blocks.get(digest)
                if known is None or not block.put_response:
                    answer.missing_blocks.add(
                        file_index=index, block_index=number, put_url=f"{self._url}/blocks/{digest}"
                    )
                elif hashlib.sha256(known).hexdigest() != digest:
                    raise GRPCError(Code.INVALID_ARGUMENT, "A block has another content than it says.")
        if not answer.missing_blocks:
            for file in request.files:
                path = top / file.path.strip("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                content = b"".join(self._blocks[block.contents_sha256.hex()] for block in file.blocks)
                # Trailing zeroes of a block may be left out.
                _write(path, content.ljust(file.size, b"\0"))
        return answer

    def read(self, request: api_pb2.VolumeGetFile2Request) -> api_pb2.VolumeGetFile2Response:
        name = request.path.strip("/")
        path = self.get(request.volume_id) / name
        if not path.is_file():
            raise GRPCError(Code.NOT_FOUND, f"No such file: {name}")
        size = path.stat().st_size
        urls = [f"{self._url}/files/{request.volume_id}/{n}/{name}" for n in range(-(-size // BLOCK))]
        return api_pb2.VolumeGetFile2Response(get_urls=urls, size=size, start=0, len=size)

    def listed(self, request: api_pb2.VolumeListFiles2Request) -> api_pb2.VolumeListFiles2Response:
        top = self.get(request.volume_id)
        folder = top / request.path.strip("/")
        if not folder.is_dir():
            raise GRPCError(Code.NOT_FOUND, f"No such folder: {request.path}")
        answer = api_pb2.VolumeListFiles2Response()
        for path in folder.rglob("*"):
            kind = api_pb2.FileEntry.FILE if path.is_file() else api_pb2.FileEntry.DIRECTORY
            name, size = path.relative_to(top).as_posix(), path.stat().st_size
            answer.entries.add(path=name, type=kind, size=size)
        return answer

    def remove(self, request: api_pb2.VolumeRemoveFile2Request) -> None:
        path = self.get(request.volume_id) / request.path.strip("/")
        if not path.is_file():
            raise GRPCError(Code.NOT_FOUND, f"No such file: {request.path}")
        path.unlink()

    def mount(self, definition: api_pb2.Sandbox, folder: Path) -> dict[str, str]:
        """Give a sandbox its view of each volume. Returns the folder of each mount path."""
        mounted = {}
        for mount in definition.volume_mounts:
            view = folder / "volumes" / mount.volume_id
            view.mkdir(parents=True)
            _show(self.get(mount.volume_id), view)
            mounted[mount.mount_path] = str(view)
        return mounted

    def reload(self, definition: api_pb2.Sandbox, folder: Path) -> None:
        if self.refused_reloads:
            self.refused_reloads -= 1
            raise GRPCError(Code.FAILED_PRECONDITION, "there are open files preventing the operation")
        self.reloads += 1
        for mount in definition.volume_mounts:
            view = folder / "volumes" / mount.volume_id
            commit(view, self.get(mount.volume_id))
            _show(self.get(mount.volume_id), view)

    def programs(self, folder: Path) -> Path:
        """A folder with the `sync` of a sandbox."""
        programs = folder / "programs"
        programs.mkdir(parents=True)
        (programs / "sync").write_text(
            f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "$1" "{self._folder}"\n'
        )
        (programs / "sync").chmod(0o755)
        return programs


def commit(view: Path, volume: Path) -> None:
    """Put into the volume what the sandbox has changed since it last saw it, and nothing else."""
    with _locked(view):
        state = view.with_name(f"{view.name}.state")
        before = json.loads(state.read_text())
        now = _state(view)
        for name, known in now.items():
            if before.get(name) != known:
                (volume / name).parent.mkdir(parents=True, exist_ok=True)
                _write(volume / name, (view / name).read_bytes())
        for name in before.keys() - now.keys():
            (volume / name).unlink(missing_ok=True)
        state.write_text(json.dumps(now))


def _show(volume: Path, view: Path) -> None:
    """Let a sandbox see the volume. What it has changed meanwhile, and not committed, stays as it is."""
    with _locked(view):
        state = view.with_name(f"{view.name}.state")
        before: dict[str, list[int]] = json.loads(state.read_text()) if state.exists() else {}
        changed = {name for name, known in _state(view).items() if before.get(name) != known}
        wanted = _state(volume)
        for name in wanted.keys() - changed:
            (view / name).parent.mkdir(parents=True, exist_ok=True)
            try:
                _write(view / name, (volume / name).read_bytes())
            except FileNotFoundError:
                continue
        for name in before.keys() - wanted.keys() - changed:
            (view / name).unlink(missing_ok=True)
        now = _state(view)
        state.write_text(json.dumps({name: now[name] for name in now.keys() & wanted.keys() - changed}))


def _state(folder: Path) -> dict[str, list[int]]:
    found = {}
    for parent, _, files in os.walk(folder):
        for file in files:
            path = Path(parent, file)
            try:
                facts = path.stat()
            except FileNotFoundError:
                continue
            found[path.relative_to(folder).as_posix()] = [facts.st_size, facts.st_mtime_ns, facts.st_ino]
    return found


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    temporary.write_bytes(content)
    temporary.replace(path)


@contextmanager
def _locked(view: Path) -> Iterator[None]:
    with view.with_name(f"{view.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    synced, volumes = Path(sys.argv[1]), Path(sys.argv[2])
    commit(synced, volumes / synced.name)

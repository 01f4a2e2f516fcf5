"""Uploads in pieces, each at its byte offset, straight to disk; the same for every kind of file.

A file grows under a hidden name and gets its own when the last byte is there and safe on the disk: half a
file is never seen as a whole one. What has arrived is the size of the hidden file and nothing else, so an
upload goes on after any crash. Whoever writes holds the hidden file's lock; the kernel frees it with the
process.
"""

import errno
import fcntl
import os
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import anyio
import anyio.to_thread
from fastapi import Header, Request, Response
from starlette.requests import ClientDisconnect

from gpubloom.server.problems import Conflict, InvalidInput, MalformedRequest, NotFound, Problem, TooLarge

OFFSET_HEADER = "Upload-Offset"
_PIECE = 1 << 20
# A client that died without a word must not keep the others out for longer.
_SILENCE_SECONDS = 60.0
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

# Larger numbers are no sizes of files, and PostgreSQL could not hold them.
LARGEST_OFFSET = 2**53
# As large as pieces usually are.
_READ_OF_REFUSED = 16 << 20
_READ_SECONDS = 10.0
# Where bodies may be of any length: they go to the disk as they come, and each is counted against what was
# announced.
UPLOADS = re.compile(r"/api/(datasets/[0-9a-fA-F-]{36}/content|models/[0-9a-fA-F-]{36}/files/[^/]{1,300})")
UploadOffset = Annotated[
    int, Header(ge=0, le=LARGEST_OFFSET, description="The byte offset at which this piece begins.")
]


class WentSilent(Problem):
    status, code = 408, "upload_stalled"


@dataclass(frozen=True)
class Arriving:
    """Where a file will lie, and how many bytes it was announced with."""

    path: Path
    size: int

    @property
    def partial(self) -> Path:
        return self.path.with_name(f".{self.path.name}.partial")

    def received(self) -> int:
        """How many bytes are here."""
        for path in (self.path, self.partial):
            try:
                return path.stat().st_size
            except FileNotFoundError:
                continue
        return 0

    @property
    def is_whole(self) -> bool:
        return self.path.is_file()


async def receive(
    pieces: AsyncIterator[bytes], file: Arriving, *, offset: int, declared: int | None = None
) -> int:
    """Append what comes at `offset`; gives how many bytes are here then. The last one completes the file.

    What arrived before a connection broke stays; of a request that brings more than was announced, nothing.
    """
    if declared is not None and offset + declared > file.size:
        raise _more_than_announced(file)
    writer = await anyio.to_thread.run_sync(_Writer.open, file, offset)
    if writer is None:
        return file.size
    try:
        try:
            async for piece in _collected(pieces):
                if writer.offset + len(piece) > file.size:
                    await anyio.to_thread.run_sync(writer.take_back)
                    raise _more_than_announced(file)
                await anyio.to_thread.run_sync(writer.write, piece)
            if writer.offset == file.size:
                await anyio.to_thread.run_sync(writer.finish)
        except FileNotFoundError as error:
            raise NotFound("This file was deleted during the upload.", code="deleted_meanwhile") from error
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise TooLarge(
                "The server's disk is full. Free some space and continue the upload. The uploaded "
                "bytes are kept.",
                code="disk_full",
                headers={OFFSET_HEADER: str(writer.offset)},
            ) from error
        return writer.offset
    finally:
        writer.close()


def _more_than_announced(file: Arriving) -> TooLarge:
    return TooLarge(
        f"The request has more bytes than the announced file size of {file.size:,} bytes. Start the "
        "upload again with the correct size.",
        code="more_than_announced",
    )


async def _collected(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in larger pieces; what came before the connection broke comes out as well."""
    waiting = bytearray()
    ended: Problem | None = None
    while ended is None:
        try:
            with anyio.fail_after(_SILENCE_SECONDS):
                piece = await anext(pieces)
        except StopAsyncIteration:
            break
        except ClientDisconnect:
            ended = MalformedRequest(
                "The connection broke during the upload. Continue the upload.", code="cut_off"
            )
        except TimeoutError:
            ended = WentSilent("No data arrived for one minute. Request the offset and continue from there.")
        else:
            waiting += piece
            if len(waiting) >= _PIECE:
                yield bytes(waiting)
                waiting.clear()
    if waiting:
        yield bytes(waiting)
    if ended is not None:
        raise ended


class _Writer:
    """The hidden file, locked. Plain file work, done in threads."""

    def __init__(self, file: Arriving, descriptor: int, offset: int) -> None:
        self._file = file
        self._descriptor = descriptor
        self._begin = offset
        self.offset = offset

    @classmethod
    def open(cls, file: Arriving, offset: int) -> "_Writer | None":
        """None when all of the file is here already and nothing is to be added."""
        if not file.is_whole:
            try:
                descriptor = os.open(file.partial, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            except FileNotFoundError as error:
                raise NotFound(
                    "This file was deleted during the upload.", code="deleted_meanwhile"
                ) from error
            writer = cls._locked(file, descriptor, offset)
            if writer is not None:
                return writer
        if offset != file.size:
            raise _wrong_offset(file.size)
        return None

    @classmethod
    def _locked(cls, file: Arriving, descriptor: int, offset: int) -> "_Writer | None":
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Conflict(
                    "Another request is uploading this file. Wait until it ends, request the offset, "
                    "and continue from there.",
                    code="upload_busy",
                ) from error
            # Whoever had the lock before may have completed the file, or somebody deleted it.
            about = os.fstat(descriptor)
            if about.st_nlink == 0 or file.is_whole:
                os.close(descriptor)
                # Opening may have made it anew behind the other's back.
                file.partial.unlink(missing_ok=True)
                return None
            if about.st_size != offset:
                raise _wrong_offset(about.st_size)
            os.lseek(descriptor, offset, os.SEEK_SET)
        except Problem:
            os.close(descriptor)
            raise
        return cls(file, descriptor, offset)

    def write(self, piece: bytes) -> None:
        rest = memoryview(piece)
        while rest:
            written = os.write(self._descriptor, rest)
            self.offset += written
            rest = rest[written:]

    def take_back(self) -> None:
        os.ftruncate(self._descriptor, self._begin)
        self.offset = self._begin

    def finish(self) -> None:
        os.fsync(self._descriptor)
        self._file.partial.replace(self._file.path)
        folder = os.open(self._file.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def close(self) -> None:
        os.close(self._descriptor)


def _wrong_offset(received: int) -> Conflict:
    return Conflict(
        f"The server already has {received:,} bytes of this file. Continue from there.",
        code="wrong_offset",
        headers={OFFSET_HEADER: str(received)},
    )


async def take_piece(request: Request, file: Arriving, offset: int) -> int:
    """Write the body of a request at its offset; gives how many bytes are here then."""
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise InvalidInput("Send the file without Content-Encoding.", code="encoded_body")
    length = request.headers.get("content-length", "")
    declared = int(length) if length.isdecimal() and len(length) <= 18 else None
    pieces = request.stream()
    try:
        return await receive(pieces, file, offset=offset, declared=declared)
    except Problem:
        await _read_on(pieces)
        raise


async def _read_on(pieces: AsyncIterator[bytes]) -> None:
    """Take some of what is refused: a client that is still sending would not see the answer."""
    left = _READ_OF_REFUSED
    with suppress(ClientDisconnect), anyio.move_on_after(_READ_SECONDS):
        async for piece in pieces:
            left -= len(piece)
            if left < 0:
                return


def offset_answer(received: int, *, status: int = 204) -> Response:
    """The header with the number of uploaded bytes."""
    return Response(status_code=status, headers={OFFSET_HEADER: str(received), "Cache-Control": "no-store"})

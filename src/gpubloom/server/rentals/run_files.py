"""The HTTP routes of this server as a store: rented machines download a job and upload its run here.

Nobody signs in: the address itself is the right, and it is good for one method, one file, one time and one
largest size (`storage/server_store.py`). Everything is checked before a byte of the body is read: the
address, the announced length, that the attempt still runs, the quota of the job's owner, the free disk space.
An address of another person's job cannot be made without the key of this installation.
"""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Annotated
from uuid import UUID

import anyio
import anyio.to_thread
from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import FileResponse, Response
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import ClientDisconnect

from gpubloom.server.accounts.principal import CurrentSettings
from gpubloom.server.db.database import CurrentDatabase
from gpubloom.server.jobs.states import ACTIVE
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.problems import Forbidden, MalformedRequest, NotFound, TooLarge, TooManyRequests
from gpubloom.server.settings import Settings
from gpubloom.server.storage.run_stores import server_store
from gpubloom.server.storage.service import SPARE_BYTES, NoRoom, free_bytes, room_left
from gpubloom.storage.layout import JobLayout
from gpubloom.storage.run_store import Method
from gpubloom.storage.server_store import AddressRefused, OpenedAddress, ServerStore

router = APIRouter(prefix="/run-files", tags=["run files"])

# Bodies that this file counts itself, against what the address allows.
UPLOADS = re.compile(r"/api/run-files/.{1,300}")
# An agent sends one batch after the other; one more may be a request whose answer was lost.
UPLOADS_PER_JOB = 2
_SILENCE_SECONDS = 60.0
_PIECE_BYTES = 1 << 20

Name = Annotated[str, Path(max_length=300)]
Number = Annotated[str, Query(max_length=15)]
Signature = Annotated[str, Query(max_length=128)]


@router.get("/{path:path}", response_class=FileResponse)
async def download_run_file(
    path: Name,
    database: CurrentDatabase,
    settings: CurrentSettings,
    expires: Number = "",
    size: Number = "",
    signature: Signature = "",
) -> FileResponse:
    """Download a file of a job to its rented machine. Only signed addresses work."""
    store = await anyio.to_thread.run_sync(server_store, settings)
    opened = _open(store, "GET", path, expires, size, signature)
    async with database.read() as session:
        await _running_job(session, opened)
    file = store.path(opened.name)
    if not await anyio.to_thread.run_sync(file.is_file):
        raise NotFound("This file is no longer in the store.", code="file_not_found")
    return FileResponse(file, media_type="application/octet-stream")


@router.put("/{path:path}", status_code=204, response_class=Response)
async def upload_run_file(
    request: Request,
    path: Name,
    database: CurrentDatabase,
    settings: CurrentSettings,
    expires: Number = "",
    size: Number = "",
    signature: Signature = "",
) -> Response:
    """Upload a batch of a run from its rented machine. Only signed addresses work."""
    store = await anyio.to_thread.run_sync(server_store, settings)
    opened = _open(store, "PUT", path, expires, size, signature)
    length = _announced(request, opened)
    async with database.read() as session:
        job = await _running_job(session, opened)
        await _require_room(session, settings, store, job.user_id, length)
    with _one_of_few(opened.job_id):
        await _receive(request, store, opened, length)
    return Response(status_code=204)


def _open(
    store: ServerStore, method: Method, name: str, expires: str, size: str, signature: str
) -> OpenedAddress:
    try:
        return store.opened(method, name, expires, size, signature)
    except AddressRefused as refused:
        raise Forbidden(str(refused), code=refused.code) from None


def _announced(request: Request, opened: OpenedAddress) -> int:
    """The length of the body. Without one, the limits could only be checked after the fact."""
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or len(length) > 15:
        raise MalformedRequest("Send the length of the file (Content-Length).", code="length_required")
    if int(length) > opened.most_bytes:
        raise TooLarge(f"The file has {int(length):,} bytes, but this address takes {opened.most_bytes:,}.")
    return int(length)


async def _running_job(session: AsyncSession, opened: OpenedAddress) -> TrainingJob:
    """The job whose attempt may use the address. Forbidden once the attempt is over or the job deleted."""
    try:
        job_id = UUID(opened.job_id)
    except ValueError:
        raise Forbidden("This address is not valid.", code="address_invalid") from None
    job = await session.scalar(
        select(TrainingJob).where(
            TrainingJob.id == job_id, TrainingJob.target != "local", TrainingJob.status.in_(ACTIVE)
        )
    )
    if job is None or opened.attempt not in {None, job.attempt}:
        raise Forbidden("This attempt of the job has ended.", code="attempt_over")
    return job


async def _require_room(
    session: AsyncSession, settings: Settings, store: ServerStore, user_id: UUID, size: int
) -> None:
    """The quota counts what was received; batches that wait for the worker count here."""
    left = await room_left(session, settings, user_id)
    running = await session.execute(
        select(TrainingJob.id, TrainingJob.attempt).where(
            TrainingJob.user_id == user_id, TrainingJob.target != "local", TrainingJob.status.in_(ACTIVE)
        )
    )
    folders = [JobLayout(str(job_id), attempt).batches for job_id, attempt in running]

    def waiting_and_free() -> tuple[int, int]:
        waiting = sum(sum(store.sizes(folder).values()) for folder in folders)
        return waiting, free_bytes(settings.home)

    waiting, free = await anyio.to_thread.run_sync(waiting_and_free)
    if waiting + size > left:
        raise NoRoom("The quota of the job's owner is used up. Delete files to make room.")
    if size > free - SPARE_BYTES:
        raise NoRoom("The disk of the server is full. Free some space.", code="disk_full")


_uploading: dict[str, int] = {}


@contextmanager
def _one_of_few(job_id: str) -> Iterator[None]:
    """Bodies that are under way take disk space that no quota has counted yet."""
    if _uploading.get(job_id, 0) >= UPLOADS_PER_JOB:
        raise TooManyRequests("This job uploads already.", retry_after=1)
    _uploading[job_id] = _uploading.get(job_id, 0) + 1
    try:
        yield
    finally:
        _uploading[job_id] -= 1
        if not _uploading[job_id]:
            del _uploading[job_id]


async def _receive(request: Request, store: ServerStore, opened: OpenedAddress, size: int) -> None:
    """Write the body to the disk; a broken one leaves nothing behind."""
    received = 0
    try:
        file = await anyio.to_thread.run_sync(store.begin, opened.name)
        try:
            async for piece in _pieces(request.stream()):
                received += len(piece)
                if received > size:
                    raise TooLarge("The body is longer than its Content-Length.")
                await anyio.to_thread.run_sync(file.write, piece)
            if received != size:
                raise MalformedRequest("The connection broke during the upload.", code="cut_off")
            await anyio.to_thread.run_sync(file.finish)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(file.close)
    except OSError as problem:
        raise NoRoom("The server could not write the file. Try again later.", code="disk_full") from problem


async def _pieces(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The body in pieces of a megabyte."""
    waiting = bytearray()
    while True:
        try:
            with anyio.fail_after(_SILENCE_SECONDS):
                waiting += await anext(stream)
        except StopAsyncIteration:
            break
        except (ClientDisconnect, TimeoutError):
            raise MalformedRequest("The connection broke during the upload.", code="cut_off") from None
        if len(waiting) >= _PIECE_BYTES:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)

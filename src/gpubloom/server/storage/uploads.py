"""The headers and answers of an upload in pieces, the same for every kind of file."""

import re
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

import anyio
from fastapi import Header, Request, Response
from starlette.requests import ClientDisconnect

from gpubloom.server.problems import InvalidInput, Problem
from gpubloom.server.storage.arriving import OFFSET_HEADER, Arriving, receive

# Larger numbers are no sizes of files, and PostgreSQL could not hold them.
LARGEST_OFFSET = 2**53
# As large as pieces usually are.
_READ_OF_REFUSED = 16 << 20
_READ_SECONDS = 10.0

# Where bodies may be of any length: they go to the disk as they come, and each is counted against what was
# announced.
UPLOADS = re.compile(r"/api/(datasets/[0-9a-fA-F-]{36}/content|models/[0-9a-fA-F-]{36}/files/[^/]{1,300})")

UploadOffset = Annotated[
    int, Header(ge=0, le=LARGEST_OFFSET, description="The byte at which this piece begins.")
]


async def take_piece(request: Request, file: Arriving, offset: int) -> int:
    """Write the body of a request at its offset; gives how many bytes are here then."""
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise InvalidInput("Send the file's own bytes, without Content-Encoding.", code="encoded_body")
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
    """Says how much is here."""
    return Response(status_code=status, headers={OFFSET_HEADER: str(received), "Cache-Control": "no-store"})

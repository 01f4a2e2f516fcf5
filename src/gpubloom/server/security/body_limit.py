"""Refuses bodies that are larger than any honest request, without reading them to their end.

Some addresses take more (`larger`); they read the body after they know whose it is. Uploads are the
exception: their routes read it piece by piece and count it themselves.
"""

import re
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpubloom.server.problems import TooLarge, problem_response

LARGEST_BODY = 1024 * 1024


class BodyLimit:
    """ASGI middleware; counts what arrives, whatever Content-Length says."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        largest: int = LARGEST_BODY,
        larger: Mapping[str, int] | None = None,
        unlimited: re.Pattern[str] | None = None,
    ) -> None:
        self.app = app
        self.largest = largest
        self.larger = dict(larger or {})
        self.unlimited = unlimited

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_upload(scope):
            await self.app(scope, receive, send)
            return
        largest = self.larger.get(scope["path"], self.largest)
        refusal = problem_response(
            TooLarge(f"The request is larger than {largest // 1024} KiB. Send less at once.")
        )
        declared = Headers(scope=scope).get("content-length", "0")
        # Longer numbers are too large whatever they say, and Python refuses to read the longest.
        if not declared.isdecimal() or len(declared) > 15 or int(declared) > largest:
            await refusal(scope, receive, send)
            return
        received = 0
        too_large = False
        answering = False

        async def counted() -> Message:
            nonlocal received, too_large
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > largest:
                    # The app sees a client that left; the real one gets the refusal.
                    too_large = True
                    return {"type": "http.disconnect"}
            return message

        async def watched(message: Message) -> None:
            nonlocal answering
            if too_large and not answering:
                return
            answering = True
            await send(message)

        try:
            await self.app(scope, counted, watched)
        finally:
            if too_large and not answering:
                await refusal(scope, receive, send)

    def _is_upload(self, scope: Scope) -> bool:
        return (
            scope["method"] == "PATCH"
            and self.unlimited is not None
            and self.unlimited.fullmatch(scope["path"]) is not None
        )

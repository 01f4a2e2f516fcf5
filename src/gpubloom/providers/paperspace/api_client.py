"""The calls of Paperspace's API that are used here, one method each.

No description of it is published; what is here follows the types of Paperspace's own client. Which words its
errors have is written nowhere, so they are searched for hints.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from gpubloom.providers.cloud import Fault, FaultKind, ignoring_gone
from gpubloom.providers.http_client import ServiceHttp
from gpubloom.providers.paperspace.machine_types import (
    Changed,
    Event,
    Machine,
    Page,
    Script,
    Session,
    Template,
)

Item = TypeVar("Item")

_PAGE_SIZE = 100
_NO_CAPACITY = re.compile(r"capacity|out of stock|not available", re.IGNORECASE)
_QUOTA = re.compile(r"quota|limit", re.IGNORECASE)


class PaperspaceApi:
    def __init__(self, http: ServiceHttp) -> None:
        self._http = http

    async def session(self) -> Session | None:
        """The user and team of the key; None if the key is invalid."""
        found = await self._http.call("GET", "/auth/session")
        return None if found is None else self._http.understood(Session, found)

    async def templates(self) -> Sequence[Template]:
        return await self._all("/os-templates", Page[Template])

    async def machines(self) -> Sequence[Machine]:
        """Ours, also those that are off: their disks are billed."""
        found = await self._all("/machines", Page[Machine])
        return [machine for machine in found if machine.ours and machine.dt_deleted is None]

    async def machine(self, identifier: str) -> Machine | None:
        try:
            return await self._http.read("GET", f"/machines/{identifier}", Machine)
        except Fault as fault:
            if fault.kind != "gone":
                raise
            return None

    async def events(self, machine_id: str) -> Sequence[Event]:
        """What was done to a machine."""
        return await self._all("/machine-events", Page[Event], {"machineId": machine_id})

    async def make_machine(self, body: Mapping[str, object]) -> Machine:
        answer = await self._http.call("POST", "/machines", body=body, launch=True)
        return self._http.understood(Changed, answer).data

    async def delete_machine(self, identifier: str) -> None:
        await self._delete(f"/machines/{identifier}")

    async def scripts(self) -> Sequence[Script]:
        """Ours."""
        return [script for script in await self._all("/startup-scripts", Page[Script]) if script.ours]

    async def make_script(self, name: str, text: str, secrets: Sequence[str]) -> Script:
        """`secrets`: what of the text may appear nowhere else."""
        body = {"name": name, "script": text, "isRunOnce": True}
        answer = await self._http.call("POST", "/startup-scripts", body=body, hide=secrets)
        return self._http.understood(Script, answer)

    async def delete_script(self, identifier: str) -> None:
        await self._delete(f"/startup-scripts/{identifier}")

    def by_our_clock(self, moment: datetime) -> datetime:
        return self._http.by_our_clock(moment)

    async def pause(self, seconds: float) -> None:
        await self._http.rate_limit.sleep(seconds)

    async def close(self) -> None:
        await self._http.close()

    async def _delete(self, path: str) -> None:
        with ignoring_gone():
            await self._http.call("DELETE", path)

    async def _all(
        self, path: str, page: type[Page[Item]], only: Mapping[str, str] | None = None
    ) -> Sequence[Item]:
        found: list[Item] = []
        query: dict[str, str | int] = {"limit": _PAGE_SIZE, **(only or {})}
        while True:
            answer = await self._http.read("GET", path, page, query=query)
            found += answer.items
            if not answer.has_more or not answer.next_page:
                return found
            query["after"] = answer.next_page


def explain(status: int, found: object) -> tuple[FaultKind | None, str]:
    match found:
        case {"message": str(message)}:
            kind: FaultKind | None = None
            if status < 500 and status not in (401, 404, 429):
                if _NO_CAPACITY.search(message):
                    kind = "no_capacity"
                elif _QUOTA.search(message):
                    kind = "quota"
            return kind, message
    return None, ""

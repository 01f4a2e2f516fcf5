"""Paperspace on the loopback address. Its machines really run their startup script.

    with PaperspaceService() as service:
        monkeypatch.setenv("BLOOM_PAPERSPACE_URL", service.url)
        provider_spec("paperspace").open(service.credentials)

A machine is billed from its making until it is deleted; while it is off, its disk is.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from tests.providers.services.paperspace_contract import paperspace_misfits
from tests.providers.services.web import (
    RETRY_AFTER_SECONDS,
    Exchange,
    Rental,
    Reply,
    Request,
    Trouble,
    WebService,
)

_REGIONS = ("East Coast (NY2)", "West Coast (CA1)", "Europe (AMS1)")
_RATES = {"A4000": 0.76, "A4000x2": 1.52, "A100-80G": 3.18, "H100": 5.95}
_MOST_ON_A_PAGE = 2

# Id, name, operating system, size, machine types.
_TEMPLATES: tuple[tuple[str, str, str, int | None, tuple[str, ...]], ...] = (
    ("twin10", "Windows 10", "Windows 10", 50, ("A4000",)),
    ("tub2004", "Ubuntu 20.04", "Ubuntu 20.04", 50, ("A4000", "A100-80G")),
    ("tub2204", "Ubuntu 22.04", "Ubuntu 22.04", None, ("A4000", "A4000x2")),
    ("tml2004", "ML-in-a-Box", "Ubuntu 20.04", 50, ("A4000", "A100-80G")),
    ("tml2204", "ML-in-a-Box", "Ubuntu 22.04", 100, ("A4000", "A100-80G")),
    ("tml2404", "ML-in-a-Box", "Ubuntu 24.04", 100, ()),
)


class PaperspaceService(WebService):
    address_variable = "BLOOM_PAPERSPACE_URL"
    base_path = "/v1"
    api_key = "bloomtests-Hidden-Paperspace-Key"
    launch_call = "POST /machines"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.scripts: dict[str, dict[str, Any]] = {}
        # Regions that have nothing free.
        self.full: set[str] = set()
        self._failed: dict[str, str] = {}

    def fail_start(self, instance_id: str, error: str) -> None:
        """The machine was promised, and cannot be had after all."""
        self._failed[instance_id] = error
        self.instances[instance_id].machine.vanish()

    def check(self, exchange: Exchange) -> Iterator[str]:
        return paperspace_misfits(exchange)

    def failure(self, trouble: Trouble, request: Request) -> Reply:
        match trouble:
            case "no_capacity":
                return _FULL
            case "quota":
                return _error(403, "FORBIDDEN", "You have reached the limit of machines of this type.")
            case "bad_credentials":
                return _error(401, "UNAUTHORIZED", "Invalid API key.")
            case "refused":
                return _error(400, "BAD_REQUEST", f"Invalid input: {request.body}")
            case "rate_limited":
                reply = _error(429, "TOO_MANY_REQUESTS", "Rate limit exceeded.")
                return Reply(429, reply.body, (("Retry-After", str(RETRY_AFTER_SECONDS)),))
        return _error(503, "INTERNAL_SERVER_ERROR", "Something broke.")

    def answer(self, request: Request) -> Reply:
        match f"{request.method} {request.path}":
            case "GET /auth/session":
                team, user = {"id": 7, "namespace": "ada"}, {"id": 9, "email": "ada@example.org"}
                return Reply(200, {"team": team, "user": user})
            case "GET /os-templates":
                return _page(request, [_template(*entry) for entry in _TEMPLATES])
            case "GET /machines":
                return _page(request, [self._shown(rental) for rental in self.running])
            case "POST /machines":
                return self._make_machine(request.body)
            case "GET /machine-events":
                return _page(request, [self._made(request.query["machineId"])])
            case "GET /startup-scripts":
                return _page(request, [self._shown_script(script) for script in self.scripts.values()])
            case "POST /startup-scripts":
                identifier = self.identifier("sus")
                made = {"id": identifier, "dtCreated": self._moment(), **request.body}
                self.scripts[identifier] = made
                return Reply(200, self._shown_script(made))
        return self._one(request)

    def _one(self, request: Request) -> Reply:
        kind, identifier = re.fullmatch(r"/(machines|startup-scripts)/([^/]+)", request.path).groups()  # type: ignore[union-attr]
        if kind == "startup-scripts":
            if identifier not in self.scripts:
                return _GONE
            return Reply(200, self._shown_script(self.scripts.pop(identifier)))
        if identifier not in self.instances or self.instances[identifier].ended:
            return _GONE
        rental = self.instances[identifier]
        if request.method == "DELETE":
            self.end(rental)
            event = {"id": self.identifier("event"), "name": "deactivate", "state": "done"}
            return Reply(200, {"data": self._shown(rental), "event": event})
        return Reply(200, self._shown(rental))

    def _make_machine(self, body: dict[str, Any]) -> Reply:
        templates = {entry[0]: entry for entry in _TEMPLATES}
        if body["region"] not in _REGIONS or body["templateId"] not in templates:
            return _error(400, "BAD_REQUEST", "There is no such region or template.")
        if body["diskSize"] < (templates[body["templateId"]][3] or 0):
            return _error(400, "BAD_REQUEST", "The disk is too small for the template.")
        if body["region"] in self.full:
            return _FULL
        script = self.scripts[body["startupScriptId"]]["script"]
        rental = self.rent(self.identifier("psmachine"), body["name"], script, body)
        event = {"id": self.identifier("event"), "name": "create", "state": "new"}
        return Reply(200, {"data": self._shown(rental), "event": event})

    def billed_seconds(self, instance_id: str) -> float:
        rental = self.instances[instance_id]
        end = self.clock() if rental.ended_at is None else rental.ended_at
        return end - rental.launched_at

    def _made(self, machine_id: str) -> dict[str, Any]:
        error = self._failed.get(machine_id)
        state = "done" if error is None else "error"
        return {"id": "event1", "name": "create", "state": state, "error": error, "machineId": machine_id}

    def _state(self, rental: Rental) -> str:
        if rental.machine.started_at is None:
            return "provisioning"
        return "ready" if rental.machine.running else "off"

    def _moment(self, moment: float | None = None) -> str:
        ahead = self.clock_ahead_seconds
        return (
            datetime.fromtimestamp((moment or self.clock()) + ahead, UTC).isoformat().replace("+00:00", "Z")
        )

    def _shown(self, rental: Rental) -> dict[str, Any]:
        body = rental.description
        return {
            "id": rental.id,
            "name": rental.name,
            "state": self._state(rental),
            "region": body["region"],
            "usageRate": _RATES[body["machineType"]],
            "storageRate": 5,
            "dtCreated": self._moment(rental.launched_at),
            "dtDeleted": None if rental.ended_at is None else self._moment(rental.ended_at),
        }

    def _shown_script(self, script: dict[str, Any]) -> dict[str, Any]:
        """The text is not shown again."""
        used = [found.id for found in self.running if found.description["startupScriptId"] == script["id"]]
        shown = {name: value for name, value in script.items() if name != "script"}
        return {**shown, "isEnabled": True, "assignedMachineIds": used}


def _page(request: Request, items: list[dict[str, Any]]) -> Reply:
    """Small pages, so that whoever reads only the first one is noticed."""
    first = int(request.query.get("after", 0))
    last = first + min(int(request.query.get("limit", 10)), _MOST_ON_A_PAGE)
    page: dict[str, Any] = {"items": items[first:last], "hasMore": last < len(items)}
    return Reply(200, page | ({"nextPage": str(last)} if page["hasMore"] else {}))


def _template(
    identifier: str, name: str, system: str, size: int | None, machine_types: tuple[str, ...]
) -> dict[str, Any]:
    return {
        "id": identifier,
        "name": name,
        "agentType": "LinuxHeadless",
        "operatingSystemLabel": system,
        "defaultSizeGb": size,
        "availableMachineTypes": [
            {"isAvailable": label in machine_types, "machineTypeLabel": label} for label in _RATES
        ],
    }


def _error(status: int, code: str, message: str) -> Reply:
    return Reply(status, {"code": code, "message": message})


_FULL = _error(400, "BAD_REQUEST", "This machine type is currently out of capacity in this region.")
_GONE = _error(404, "NOT_FOUND", "Not found.")

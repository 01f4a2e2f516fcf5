"""RunPod on the loopback address. Its pods really run their command, and are started again when it ends.

A pod has two disks, as at RunPod: the one of the container is empty after a restart, the mounted one is not.
With the key that a pod finds in its environment it can look at itself and delete itself, and nothing else.
"""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.providers.services.machine import Machine, image
from tests.providers.services.runpod_contract import runpod_misfits
from tests.providers.services.spec import misfits, published
from tests.providers.services.web import (
    RETRY_AFTER_SECONDS,
    Exchange,
    Rental,
    Reply,
    Request,
    Trouble,
    WebService,
)

SPEC = "runpod-rest-v2-openapi.json"
HOST = "https://api.runpod.io"

# Id, name, memory, dollars an hour on the secure cloud, the most GPUs of a pod, stock by data center.
_TYPES: tuple[tuple[str, str, int, float, int, dict[str, str]], ...] = (
    ("NVIDIA GeForce RTX 4090", "RTX 4090", 24, 0.74, 8, {"US-KS-2": "HIGH", "EU-RO-1": "LOW"}),
    ("NVIDIA H100 80GB HBM3", "H100 SXM", 80, 3.99, 8, {"EU-RO-1": "MEDIUM", "US-TX-3": "HIGH"}),
    ("NVIDIA H100 PCIe", "H100 PCIe", 80, 2.89, 8, {}),
    ("NVIDIA A100 80GB PCIe", "A100 PCIe", 80, 1.64, 8, {"US-KS-2": "LOW"}),
    ("NVIDIA A100-SXM4-80GB", "A100 SXM", 80, 1.79, 8, {"US-KS-2": "HIGH"}),
    ("NVIDIA RTX A6000", "RTX A6000", 48, 0.53, 4, {"SEA-SG-1": "HIGH"}),
    ("Tesla V100-SXM2-16GB", "V100 SXM2", 16, 0.23, 8, {"US-KS-2": "HIGH"}),
    ("AMD Instinct MI300X OAM", "MI300X", 192, 2.69, 8, {"EU-RO-1": "HIGH"}),
)
_LEVELS = ("NONE", "LOW", "MEDIUM", "HIGH")


class RunPodService(WebService):
    address_variable = "BLOOM_RUNPOD_URL"
    api_key = "rpa_bloom-tests_Hidden-RunPod-Key"
    launch_call = "POST /v2/pods"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.types = [_type(*entry) for entry in _TYPES]
        self.restarts: dict[str, int] = {}
        # Read now: it takes a while, and somebody may be waiting for an answer later.
        self._spec = published(SPEC)

    def sold_out(self) -> None:
        """Nothing is free anywhere."""
        for kind in self.types:
            kind["availability"] = "NONE"
            kind.pop("dataCenters", None)

    def check(self, exchange: Exchange) -> Iterator[str]:
        yield from runpod_misfits(exchange)
        if self._spec is not None:
            yield from misfits(self._spec, HOST, exchange)

    def failure(self, trouble: Trouble, request: Request) -> Reply:
        match trouble:
            case "no_capacity":
                return _error(400, "There are no longer any instances available with these specifications.")
            case "quota":
                return _error(402, "Insufficient balance.")
            case "bad_credentials":
                return _error(401, "invalid bearer token")
            case "no_access":
                return _error(403, "access denied")
            case "refused":
                return _error(422, f"Request validation failed: {request.body}")
            case "rate_limited":
                return replace(
                    _error(429, "rate limit exceeded for the minute window"),
                    headers=(("Retry-After", str(RETRY_AFTER_SECONDS)),),
                )
        return _error(503, "upstream failed")

    def serve(self, request: Request) -> Reply | None:
        with self._lock:
            self._restart_what_has_ended()
            found = re.fullmatch(r"/v2/pods/([^/]+)", request.path)
            if (
                found is not None
                and request.method in {"GET", "DELETE"}
                and request.headers.get("authorization") == f"Bearer {_key_of(found[1])}"
            ):
                headers = {**request.headers, "authorization": f"Bearer {self.api_key}"}
                request = replace(request, headers=headers)
        return super().serve(request)

    def answer(self, request: Request) -> Reply:
        match f"{request.method} {request.path}":
            case "GET /v2/pods":
                return Reply(200, {"pods": [self._shown(rental) for rental in self.running]})
            case "POST /v2/pods":
                return self._create(request.body)
            case "GET /v2/catalog/gpus":
                return self._catalogue(request.query)
            case "GET /v2/billing/pods":
                return self._bill(request.query)
        found = re.fullmatch(r"/v2/pods/([^/]+)(/logs)?", request.path)
        rental = None if found is None else self.instances.get(found[1])
        if rental is None or rental.ended:
            return _error(404, "resource not found")
        if found is not None and found[2]:
            return self._logs(rental)
        if request.method == "DELETE":
            self.end(rental)
            return Reply(204, None)
        return Reply(200, self._shown(rental))

    def _create(self, body: dict[str, Any]) -> Reply:
        kind = next((each for each in self.types if each["id"] == body["gpu"]["id"]), None)
        if kind is None or kind["availability"] == "NONE":
            return self.failure("no_capacity", Request("POST", "/v2/pods", {}, body, {}))
        identifier = self.identifier("7h9k2m4n")
        now = self.clock()
        machine = self._container(identifier, body)
        self.instances[identifier] = Rental(
            identifier, body["name"], machine, {**body, "kind": kind}, now, now + self.boot_seconds
        )
        self._boot_what_is_due()
        return Reply(201, self._shown(self.instances[identifier]))

    def _container(self, identifier: str, body: dict[str, Any]) -> Machine:
        folder = Path(self._folder.name) / identifier
        environment = image(folder, {"runpodctl": "#!/bin/sh\nexit 1\n"})
        path = body["mounts"]["persistent"]["path"]
        given = {name: value.replace(path, environment["BLOOM_HOME"]) for name, value in body["env"].items()}
        own = self.pod_environment(identifier)
        return Machine(folder, shlex.split(body["args"]), {**environment, **given, **own}, clock=self.clock)

    def pod_environment(self, identifier: str) -> dict[str, str]:
        """What RunPod itself tells a pod."""
        return {"RUNPOD_POD_ID": identifier, "RUNPOD_API_KEY": _key_of(identifier)}

    def _restart_what_has_ended(self) -> None:
        for rental in self.running:
            if rental.machine.started_at is None or rental.machine.running:
                continue
            folder = rental.machine.folder
            self.restarts[rental.id] = self.restarts.get(rental.id, 0) + 1
            kept = folder / "bloom"
            for entry in folder.iterdir():
                if entry != kept:
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            rental.machine = self._container(rental.id, rental.description)
            rental.machine.start()

    def _status(self, rental: Rental) -> str:
        if rental.taken_away:
            return "ERROR"
        if rental.ended:
            return "TERMINATED"
        return "PROVISIONING" if rental.machine.started_at is None else "RUNNING"

    def _shown(self, rental: Rental) -> dict[str, Any]:
        body = rental.description
        started = rental.machine.started_at
        centers = body.get("dataCenterIds") or [center["id"] for center in body["kind"]["dataCenters"]]
        gpu = {"id": body["gpu"]["id"], "count": body["gpu"]["count"]}
        return {
            "id": rental.id,
            "name": rental.name,
            "image": body["image"],
            "args": body["args"],
            "disk": body["disk"],
            "ports": body.get("ports", []),
            "env": body["env"],
            "registry": None,
            "status": self._status(rental),
            "actions": ["stop", "restart", "terminate"],
            "mounts": body["mounts"],
            "gpu": gpu,
            "cloud": body["cloud"],
            "dataCenterId": centers[0],
            "cudaVersion": "12.8",
            "ssh": {"proxy": None, "direct": self._ssh(rental)},
            "template": None,
            "cost": round(body["kind"]["price"]["secure"] * gpu["count"], 4),
            "locked": False,
            "globalNetworking": {"enabled": False},
            "runtime": None,
            "createdAt": self._moment(rental.launched_at),
            "startedAt": None if started is None else self._moment(started),
        }

    def _ssh(self, rental: Rental) -> dict[str, Any] | None:
        if "22/tcp" not in rental.description.get("ports", []) or rental.machine.started_at is None:
            return None
        host, port = rental.machine.ssh_address, rental.machine.ssh_port
        return {"host": host, "port": port, "username": "root", "command": f"ssh root@{host} -p {port}"}

    def _catalogue(self, query: dict[str, str]) -> Reply:
        if query.get("include") == "AVAILABILITY" and "product" not in query:
            return _error(400, "product is required with include=AVAILABILITY")
        return Reply(200, {"gpus": self.types})

    def _bill(self, query: dict[str, str]) -> Reply:
        if {"lastN", "startTime"} <= query.keys():
            return _error(400, "lastN and startTime are mutually exclusive")
        rental = self.instances.get(query["podId"])
        seconds = 0.0 if rental is None else self.billed_seconds(rental.id)
        amount = 0.0 if rental is None else rental.description["kind"]["price"]["secure"] * seconds / 3600
        range_ = {"startTime": self._moment(self.clock() - 86400), "endTime": self._moment(self.clock())}
        totals = {"totalAmount": amount, "gpuAmount": amount, "cpuAmount": 0.0, "diskAmount": 0.0}
        # RunPod bills with a delay.
        records = [{**range_, "podId": query["podId"], **totals}] if seconds > 60 else []
        metadata = {
            "query": {**range_, "bucketSize": query["bucketSize"], "podId": query["podId"]},
            "recordCount": len(records),
            "uniquePodCount": len(records),
            "totals": totals if records else dict.fromkeys(totals, 0.0),
        }
        return Reply(200, {"records": records, "metadata": metadata})

    def _logs(self, rental: Rental) -> Reply:
        told = ": the stream begins\n\n"
        for at, line in rental.machine.output:
            event = {"ts": self._moment(at), "source": "container", "line": line.rstrip("\n")}
            told += f"id: {event['ts']}\ndata: {json.dumps(event)}\n\n"
        return Reply(200, told.encode(), content_type="text/event-stream", stays_open=True)

    def _moment(self, at: float) -> str:
        return datetime.fromtimestamp(at + self.clock_ahead_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _key_of(pod: str) -> str:
    return f"rpa_Hidden-Pod-Key-{pod}"


def _type(
    identifier: str, name: str, memory: int, hourly: float, most: int, stock: dict[str, str]
) -> dict[str, Any]:
    level = max(stock.values(), key=_LEVELS.index, default="NONE")
    kind: dict[str, Any] = {
        "id": identifier,
        "name": name,
        "pool": None,
        "manufacturer": "AMD" if "AMD" in identifier else "NVIDIA",
        "memory": memory,
        "secure": True,
        "community": False,
        "price": {"secure": hourly, "community": 0.0},
        "maxCount": {"secure": most, "community": 0},
        "availability": level,
    }
    if stock:
        kind["dataCenters"] = [
            {"id": center, "name": center, "availability": found} for center, found in stock.items()
        ]
    return kind


def _error(status: int, detail: str) -> Reply:
    titles = {400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 404: "Not Found"}
    body = {"title": titles.get(status, "Error"), "status": status, "detail": detail}
    return Reply(status, body, content_type="application/problem+json")

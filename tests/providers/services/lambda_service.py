"""Lambda on the loopback address. Its machines really run their user data.

    with LambdaService() as service:
        monkeypatch.setenv("BLOOM_LAMBDA_URL", service.url)
        provider_spec("lambda").open(service.credentials)

A machine is billed from when it is active until it is ended through the API, whatever happens on it.
"""

import re
from collections.abc import Iterator
from typing import Any

from tests.providers.services.lambda_contract import lambda_misfits
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

SPEC = "lambda-cloud-openapi.json"
_HOST = "https://cloud.lambda.ai"
_API = "/api/v1"
_REGIONS = {"us-east-1": "Virginia, USA", "us-west-1": "California, USA", "europe-central-1": "Germany"}

# Name, GPU, how many, US cents an hour, where some are free.
_TYPES: tuple[tuple[str, str, int, int, tuple[str, ...]], ...] = (
    ("gpu_1x_a10", "A10 (24 GB PCIe)", 1, 129, ("us-east-1", "europe-central-1")),
    # As Lambda's API writes it; documented, not recorded.
    ("gpu_1x_a6000", "A6000 (48 GB)", 1, 109, ()),
    ("gpu_1x_gh200", "GH200 (96 GB)", 1, 149, ("us-east-1",)),
    ("gpu_8x_v100", "Tesla V100 (16 GB)", 8, 440, ("us-east-1",)),
    ("gpu_1x_rtx6000", "Quadro RTX 6000 (24 GB)", 1, 50, ("us-east-1",)),
    ("gpu_1x_a100", "A100 (40 GB PCIe)", 1, 199, ("us-west-1",)),
    ("gpu_1x_a100_sxm4", "A100 (40 GB SXM4)", 1, 209, ("us-east-1", "us-west-1")),
    ("gpu_8x_a100_80gb_sxm4", "A100 (80 GB SXM4)", 8, 2232, ("us-east-1",)),
    ("gpu_1x_h100_pcie", "H100 (80 GB PCIe)", 1, 329, ("us-west-1",)),
    ("gpu_1x_h100_sxm5", "H100 (80 GB SXM5)", 1, 429, ("us-east-1",)),
    ("cpu_4x_general", "N/A", 0, 8, ("us-east-1",)),
)

_ACTIONS = ("migrate", "rebuild", "restart", "cold_reboot", "terminate")


class LambdaService(WebService):
    address_variable = "BLOOM_LAMBDA_URL"
    api_key = "secret_bloom-tests_Hidden-Lambda-Key"
    launch_call = f"POST {_API}/instance-operations/launch"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.ssh_keys: list[dict[str, str]] = []
        self.types = {entry[0]: _type(*entry) for entry in _TYPES}
        # Read now: it takes a while, and somebody may be waiting for an answer later.
        self._spec = published(SPEC)

    def sold_out(self) -> None:
        """Nothing is free anywhere."""
        for offered in self.types.values():
            offered["regions_with_capacity_available"] = []

    def forget(self, instance_id: str) -> None:
        """The service does not show it any more."""
        self.end(self.instances[instance_id])
        self.instances.pop(instance_id)

    def check(self, exchange: Exchange) -> Iterator[str]:
        yield from lambda_misfits(exchange)
        if self._spec is not None:
            yield from misfits(self._spec, _HOST, exchange)

    def failure(self, trouble: Trouble, request: Request) -> Reply:
        match trouble:
            case "no_capacity":
                return _FULL
            case "quota":
                return _error(400, "global/quota-exceeded", "Quota exceeded.")
            case "bad_credentials":
                return _error(401, "global/invalid-api-key", "API key was invalid, expired, or deleted.")
            case "inactive_account":
                return _error(403, "global/account-inactive", "Your account is inactive.")
            case "refused":
                return _error(400, "global/invalid-parameters", f"Invalid request data: {request.body}")
            case "rate_limited":
                reply = _error(429, "global/rate-limited", "Slow down.")
                return Reply(429, reply.body, (("Retry-After", str(RETRY_AFTER_SECONDS)),))
        return _error(503, "global/internal-error", "Something broke.")

    def answer(self, request: Request) -> Reply:
        call = f"{request.method} {request.path.removeprefix(_API)}"
        match call:
            case "GET /instance-types":
                return _data(self.types)
            case "GET /instances":
                return _data([self._shown(rental) for rental in self.running])
            case "GET /ssh-keys":
                return _data(self.ssh_keys)
            case "POST /ssh-keys":
                self.ssh_keys.append({"id": self.identifier("key-"), **request.body})
                return _data(self.ssh_keys[-1])
            case "POST /instance-operations/launch":
                return self._launch(request.body)
            case "POST /instance-operations/terminate":
                return self._terminate(request.body["instance_ids"])
        found = re.fullmatch(r"GET /instances/([^/]+)", call)
        if found is None or found[1] not in self.instances:
            return _error(404, "global/object-does-not-exist", "Specified instance does not exist.")
        return _data(self._shown(self.instances[found[1]]))

    def _launch(self, body: dict[str, Any]) -> Reply:
        offered = self.types.get(body["instance_type_name"])
        if offered is None:
            return _error(404, "global/object-does-not-exist", "No such type.", "Look at the types.")
        if body["ssh_key_names"][0] not in [key["name"] for key in self.ssh_keys]:
            return _error(404, "global/object-does-not-exist", "No such SSH key.", "Look at the keys.")
        free = [region["name"] for region in offered["regions_with_capacity_available"]]
        if body["region_name"] not in free:
            return _FULL
        rental = self.rent(self.identifier("0920582c7ff04139"), body["name"], body["user_data"], body)
        return _data({"instance_ids": [rental.id]})

    def _terminate(self, identifiers: list[str]) -> Reply:
        if any(identifier not in self.instances for identifier in identifiers):
            return _error(404, "global/object-does-not-exist", "Specified instance does not exist.")
        for identifier in identifiers:
            self.end(self.instances[identifier])
        shown = [self._shown(self.instances[identifier]) for identifier in identifiers]
        return _data({"terminated_instances": shown})

    def _status(self, rental: Rental) -> str:
        if rental.taken_away:
            return "preempted"
        if rental.ended:
            return "terminated"
        if rental.machine.started_at is None:
            return "booting"
        return "active" if rental.machine.running else "unhealthy"

    def _shown(self, rental: Rental) -> dict[str, Any]:
        body = rental.description
        return {
            "id": rental.id,
            "name": rental.name,
            "ip": rental.machine.ssh_address,
            "private_ip": "10.0.2.100",
            "status": self._status(rental),
            "ssh_key_names": body["ssh_key_names"],
            "file_system_names": [],
            "region": _region(body["region_name"]),
            "instance_type": self.types[body["instance_type_name"]]["instance_type"],
            "hostname": "198.51.100.2",
            "is_reserved": False,
            "actions": {action: {"available": True} for action in _ACTIONS},
            "tags": body.get("tags", []),
        }


def _type(name: str, gpu: str, gpus: int, cents: int, free: tuple[str, ...]) -> dict[str, Any]:
    return {
        "instance_type": {
            "name": name,
            "description": f"{gpus}x {gpu}",
            "gpu_description": gpu,
            "price_cents_per_hour": cents,
            "specs": {"vcpus": 30, "memory_gib": 200, "storage_gib": 1400, "gpus": gpus},
        },
        "regions_with_capacity_available": [_region(region) for region in free],
    }


def _region(name: str) -> dict[str, str]:
    return {"name": name, "description": _REGIONS[name]}


def _data(content: object) -> Reply:
    return Reply(200, {"data": content})


def _error(status: int, code: str, message: str, suggestion: str = "Try something else.") -> Reply:
    return Reply(status, {"error": {"code": code, "message": message, "suggestion": suggestion}})


_FULL = _error(400, "instance-operations/launch/insufficient-capacity", "Nothing is free.")

"""Pods at RunPod (api.runpod.io), over version 2 of its HTTP API.

A pod is a container on a rented machine. RunPod starts a container that exits again and bills it on, so the
script in it never ends by itself: it deletes its own pod, with the key that RunPod gives each pod for itself.
A disk that outlives the container remembers that the job was started once.
"""

import base64
import gzip
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from gpubloom.offers import PriceRow
from gpubloom.providers.cloud import (
    KEY_PREFIX,
    Capabilities,
    Capability,
    CredentialField,
    Fault,
    FaultKind,
    Instance,
    Launch,
    SingleLaunch,
    ignoring_gone,
)
from gpubloom.providers.cloud_init import user_data_script
from gpubloom.providers.http_client import HttpProviderSpec, ServiceHttp
from gpubloom.providers.runpod.gpu_types import (
    COUNTS,
    Bill,
    GpuType,
    GpuTypes,
    Pod,
    Pods,
    price_rows,
    state_of,
)

ADDRESS = "https://api.runpod.io"
_PAGE = "https://console.runpod.io/pods"
_CALLS_EVERY_SECONDS = 0.2
_LAUNCHES_EVERY_SECONDS = 1.0
_PAUSE_SECONDS = 2.0
# An example of RunPod's API description: Ubuntu 24.04 (Python 3.12), CUDA 12.8, PyTorch 2.8.
_IMAGE = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"
_CUDA = "12.8"
# The disk of the container holds the image's changes; the job's files are on the other one.
_CONTAINER_DISK_GB = 20
_SMALLEST_DISK_GB = 10
_HOME = "/bloom"
_ARGS = "bash -c 'base64 -d <<<$BLOOM_SCRIPT | gunzip >~/bloom.sh && exec bash ~/bloom.sh'"
_LOG_LINES = 60
# RunPod has no code for it: these are words of its messages.
_NO_CAPACITY = re.compile(
    r"instances? (is |are |currently )*available|capacity|does not have the resources|could not be placed"
    r"|not available|out of stock",
    re.IGNORECASE,
)
# Longer than any bucket of a bill needs to be closed: no run of ours lasts as long.
_BILL_DAYS = 60

CAPABILITIES = Capabilities(
    runs_unattended=Capability(True),
    live_prices=Capability(True),
    several_gpus=Capability(True),
    several_nodes=Capability(False, "Pods are rented one by one and cannot be combined for one job."),
    spot=Capability(
        False, "GPU Bloom rents pods of RunPod's secure cloud on demand. They are not preempted."
    ),
    # The pod deletes itself, after its job and at its longest life.
    switch_off=Capability(True),
)


class RunPod:
    """One account."""

    name = "runpod"
    capabilities = CAPABILITIES

    def __init__(
        self, http: ServiceHttp, address: str = ADDRESS, *, pause_seconds: float = _PAUSE_SECONDS
    ) -> None:
        self._http = http
        self._address = address.rstrip("/")
        self._pause_seconds = pause_seconds
        self._launches = SingleLaunch(self._find, lambda: http.rate_limit.sleep(self._pause_seconds))

    def __repr__(self) -> str:
        return "RunPod()"

    async def check(self) -> str:
        pods = (await self._http.read("GET", "/v2/pods", Pods)).pods
        return f"account with {len(pods)} pod{'' if len(pods) == 1 else 's'}"

    async def prices(self) -> list[PriceRow]:
        types = {count: await self._types(count) for count in COUNTS}
        return list(price_rows(types, datetime.now(UTC).date()))

    async def submit(self, launch: Launch) -> Instance:
        assert launch.key.startswith(KEY_PREFIX), launch.key
        return await self._launches.once(launch.key, lambda: self._start(launch))

    async def status(self, instance_id: str) -> Instance:
        try:
            pod = await self._http.read("GET", f"/v2/pods/{instance_id}", Pod)
        except Fault as fault:
            if fault.kind != "gone":
                raise
            return Instance(instance_id, "", "ended", "RunPod no longer has this pod.")
        return self._instance(pod)

    async def cancel(self, instance_id: str) -> None:
        with ignoring_gone():
            await self._http.call("DELETE", f"/v2/pods/{instance_id}")

    async def list(self) -> list[Instance]:
        """Also pods whose container has stopped: their disks are billed."""
        pods = (await self._http.read("GET", "/v2/pods", Pods)).pods
        return [self._instance(pod) for pod in pods if pod.ours and pod.status != "TERMINATED"]

    async def console(self, instance_id: str) -> Sequence[str]:
        """What the container and its host printed last."""
        try:
            events = await self._http.events(f"/v2/pods/{instance_id}/logs", query={"tail": _LOG_LINES})
        except Fault as fault:
            if fault.kind != "gone":
                raise
            return []
        return [str(event["line"]) for event in events if "line" in event][-_LOG_LINES:]

    async def bill(self, instance_id: str) -> float | None:
        """US dollars that RunPod has billed for a pod so far, its disks included; None: nothing yet."""
        query: dict[str, str | int] = {"podId": instance_id, "bucketSize": "day", "lastN": _BILL_DAYS}
        found = (await self._http.read("GET", "/v2/billing/pods", Bill, query=query)).metadata
        return found.totals.total_amount if found.record_count else None

    async def close(self) -> None:
        await self._http.close()

    async def _start(self, launch: Launch) -> Instance:
        kind = await self._type_for(launch)
        centers = kind.centers(launch.region) if launch.region else []
        return await self._launches.answered(launch.key, lambda: self._launch(launch, kind, centers))

    async def _launch(self, launch: Launch, kind: GpuType, centers: Sequence[str]) -> Instance:
        script = user_data_script(launch, ends="delete_pod", home=_HOME, api=self._address)
        packed = base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode()
        body = {
            "name": launch.key,
            "image": _IMAGE,
            "cloud": "SECURE",
            "gpu": {"id": kind.id, "count": launch.gpus, "minCudaVersion": _CUDA},
            "disk": _CONTAINER_DISK_GB,
            "mounts": {"persistent": {"size": max(launch.disk_gb, _SMALLEST_DISK_GB), "path": _HOME}},
            "env": {"BLOOM_SCRIPT": packed, "BLOOM_JOB_FOLDER": f"{_HOME}/job"},
            "args": _ARGS,
            **({"dataCenterIds": list(centers)} if centers else {}),
            **({"ports": ["22/tcp"]} if launch.ssh is not None else {}),
        }
        hidden = (packed, *launch.confidential)
        answer = await self._http.call("POST", "/v2/pods", body=body, launch=True, hide=hidden)
        return self._instance(self._http.understood(Pod, answer))

    async def _find(self, key: str) -> Instance | None:
        return next((pod for pod in await self.list() if pod.key == key), None)

    async def _types(self, count: int) -> Sequence[GpuType]:
        query: dict[str, str | int] = {
            "include": "AVAILABILITY",
            "product": "POD",
            "cloud": "SECURE",
            "count": count,
            "minCudaVersion": _CUDA,
        }
        return (await self._http.read("GET", "/v2/catalog/gpus", GpuTypes, query=query)).gpus

    async def _type_for(self, launch: Launch) -> GpuType:
        """The cheapest type with this GPU that has stock. Raises Fault if none has."""
        wanted = f"{launch.gpus}× {launch.gpu}"
        fits = [
            kind
            for kind in await self._types(launch.gpus)
            if kind.is_usable and kind.gpu == launch.gpu and kind.max_count.secure >= launch.gpus
        ]
        if not fits:
            raise Fault("refused", f"RunPod has no pods with {wanted}. Choose another offer.")
        free = [kind for kind in fits if kind.availability != "NONE" and kind.centers(launch.region)]
        if not free:
            where = f" in {launch.region}" if launch.region else ""
            raise Fault(
                "no_capacity",
                f"RunPod has no free machine with {wanted}{where}. Wait, or choose another offer.",
            )
        return min(free, key=lambda kind: kind.price.secure)

    def _instance(self, pod: Pod) -> Instance:
        """Billed from its creation: RunPod does not say how much of the start it bills, see `bill`."""
        state, detail = state_of(pod.status)
        reached = pod.ssh.direct
        return Instance(
            pod.id,
            pod.name if pod.ours else "",
            state,
            detail,
            region=pod.data_center_id,
            hourly=pod.cost or None,
            billed_from=None if pod.created_at is None else self._http.by_our_clock(pod.created_at),
            page=_PAGE,
            host=None if reached is None else reached.host,
            port=22 if reached is None else reached.port,
        )


def _explain(status: int, found: object) -> tuple[FaultKind | None, str]:
    match found:
        case {"detail": str(detail), **rest}:
            errors = rest.get("errors")
            told = "; ".join([detail, *map(str, errors)]) if isinstance(errors, list) else detail
            if status == 400 and _NO_CAPACITY.search(detail):
                return "no_capacity", told
            if status == 403:
                return None, (
                    f"{told}. Your account may not have access to this GPU, which another offer solves, or "
                    "the API key has no read and write access"
                )
            return None, told
    return None, ""


PROVIDER = HttpProviderSpec(
    name="runpod",
    title="RunPod",
    fields=(
        CredentialField(
            "api_key",
            "API key",
            hint="Create an API key with read and write access in the RunPod console, under Settings, "
            "API keys.",
        ),
    ),
    capabilities=CAPABILITIES,
    page="https://console.runpod.io/user/settings",
    address=ADDRESS,
    explain=_explain,
    calls_every=_CALLS_EVERY_SECONDS,
    launches_every=_LAUNCHES_EVERY_SECONDS,
    connect=lambda http, _: RunPod(http, http.address),
)

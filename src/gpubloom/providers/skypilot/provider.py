"""SkyPilot: every other cloud, and Kubernetes. A job is a cluster of one machine or more, named by its key.

Its server does the work; it is on this machine, or where the operator says (SKYPILOT_API_SERVER_ENDPOINT).
People do not choose it: SkyPilot's client runs what its server sends, so a server is trusted like a package.
"""

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from gpubloom.offers import PriceRow
from gpubloom.providers.cloud import (
    KEY_PREFIX,
    Capabilities,
    Capability,
    CredentialField,
    Fault,
    Instance,
    Launch,
    ignoring_gone,
)
from gpubloom.providers.registry import ProviderSpec
from gpubloom.providers.skypilot.process import PYTHON_VARIABLE, SkyPilotProcess, TimeLimits, skypilot_fault
from gpubloom.providers.skypilot.task import price_rows, task_of

# A provider has a method named list.
_Instances: TypeAlias = list[Instance]

_CAPABILITIES = Capabilities(
    runs_unattended=Capability(True),
    live_prices=Capability(True),
    several_gpus=Capability(True),
    several_nodes=Capability(True),
    spot=Capability(True),
    # The cluster is launched with autodown: the machine terminates itself.
    switch_off=Capability(True),
)
# Of a task's states; anything else is not over.
_OVER = {"SUCCEEDED", "FAILED", "FAILED_SETUP", "FAILED_DRIVER", "CANCELLED"}


@dataclass(frozen=True)
class _SkyPilotKind(ProviderSpec):
    def why_not(self) -> str | None:
        if os.environ.get(PYTHON_VARIABLE):
            return None
        if program := shutil.which("sky"):
            python = Path(program).resolve().with_name("python")
            return (
                "SkyPilot is installed on the server but not enabled, because every user of this "
                f"server could spend money on its clouds. To enable it, set {PYTHON_VARIABLE}={python}"
            )
        return (
            "SkyPilot is not installed on the server. Install it into its own environment: python3 -m "
            f"venv skypilot; skypilot/bin/pip install 'skypilot[aws,gcp]'; then set {PYTHON_VARIABLE} "
            "to its Python."
        )

    def open(self, credentials: Mapping[str, str]) -> "SkyPilotProvider":
        return SkyPilotProvider(os.environ.get(PYTHON_VARIABLE, ""), credentials.get("token") or None)


PROVIDER = _SkyPilotKind(
    name="skypilot",
    title="SkyPilot",
    fields=(
        CredentialField(
            "token",
            "Service account token",
            required=False,
            hint="Only needed if SkyPilot's server requires a token.",
        ),
    ),
    capabilities=_CAPABILITIES,
    page="https://docs.skypilot.co/en/latest/reference/auth.html",
)


@dataclass(frozen=True)
class Chosen:
    """One offer of many. `hourly` is for all its machines together."""

    cloud: str
    region: str | None
    instance_type: str
    gpu: str
    gpus: int
    nodes: int
    hourly: float


class SkyPilotProvider:
    """An instance is named by its cluster, the request that launched it, and `spot` for a spot machine."""

    name = "skypilot"
    capabilities = _CAPABILITIES

    def __init__(self, python: str, token: str | None = None, limits: TimeLimits | None = None) -> None:
        self._sky = SkyPilotProcess(python, token, limits or TimeLimits())
        self._started: dict[str, str] = {}
        self._ended_by_us: set[str] = set()

    async def check(self) -> str:
        clouds = await self._clouds()
        owner = await self._sky.ask("owner")
        named = ", ".join(clouds)
        return named if owner is None else f"{owner}: {named}"

    async def prices(self) -> list[PriceRow]:
        return price_rows(
            await self._sky.ask("prices", clouds=await self._clouds()), datetime.now(UTC).date()
        )

    async def best(self, launch: Launch) -> Chosen:
        """What SkyPilot would take for this launch, by its own optimizer, and what that costs."""
        return Chosen(**await self._sky.ask("best", task=task_of(launch), clouds=await self._clouds()))

    async def submit(self, launch: Launch) -> Instance:
        if launch.key in self._started:
            return await self.status(self._started[launch.key])
        if found := await self._find(launch.key):
            return found
        try:
            request = await self._sky.ask(
                "launch",
                hidden=launch.confidential,
                task=task_of(launch),
                secrets={"BLOOM_START": launch.start_address},
                name=launch.key,
            )
        except Fault as fault:
            found = await self._perhaps(launch.key) if fault.uncertain else None
            if found is None:
                raise
            return found
        instance_id = f"{launch.key}/{request}" + ("/spot" if launch.spot else "")
        self._started[launch.key] = instance_id
        await self._first_news(request, launch)
        return await self.status(instance_id)

    async def status(self, instance_id: str) -> Instance:
        key, request, spot = _parts(instance_id)
        clusters = await self._sky.ask("clusters", name=key)
        if clusters:
            return await self._as_instance(instance_id, clusters[0], ask_job=True)
        became: dict[str, Any] = {"state": "unknown"}
        if request:
            became = await self._sky.ask("request", request=request)
        if became["state"] == "going":
            return Instance(instance_id, key, "starting", "A machine was requested.")
        if became["state"] == "failed" and key not in self._ended_by_us:
            fault = skypilot_fault(became["problem"])
            return Instance(instance_id, key, "lost" if fault.passes else "ended", str(fault))
        lost = spot and key not in self._ended_by_us
        return Instance(instance_id, key, "lost" if lost else "ended", "SkyPilot no longer has this machine.")

    async def cancel(self, instance_id: str) -> None:
        key, request, _ = _parts(instance_id)
        self._ended_by_us.add(key)
        if request and (await self._sky.ask("request", request=request))["state"] == "going":
            await self._sky.ask("drop", request=request)
        with ignoring_gone():
            ending = await self._sky.ask("down", name=key)
            became = await self._waited(ending, self._sky.limits.down)
            if became["state"] == "failed":
                raise skypilot_fault(became["problem"])

    async def list(self) -> _Instances:
        found = [
            await self._as_instance(
                self._started.get(cluster["name"], cluster["name"]), cluster, ask_job=False
            )
            for cluster in await self._sky.ask("clusters")
            if cluster["name"].startswith(KEY_PREFIX)
        ]
        there = {instance.key for instance in found}
        waiting = [
            Instance(f"{going['name']}/{going['request']}", going["name"], "starting")
            for going in await self._sky.ask("launches")
            if going["name"].startswith(KEY_PREFIX) and going["name"] not in there
        ]
        return [*found, *waiting]

    async def close(self) -> None:
        await self._sky.close()

    # Steps of the above

    async def _clouds(self) -> Sequence[str]:
        clouds: Sequence[str] = await self._sky.ask("clouds")
        if not clouds:
            raise Fault(
                "bad_credentials",
                "SkyPilot has no cloud that it can use. Run `sky check` to see what each cloud needs.",
            )
        return clouds

    async def _find(self, key: str) -> Instance | None:
        """A cluster of that name, or one that has been asked for."""
        for cluster in await self._sky.ask("clusters", name=key):
            return await self._as_instance(key, cluster, ask_job=False)
        for going in await self._sky.ask("launches"):
            if going["name"] == key:
                return Instance(f"{key}/{going['request']}", key, "starting")
        return None

    async def _perhaps(self, key: str) -> Instance | None:
        try:
            return await self._find(key)
        except Fault:
            return None

    async def _first_news(self, request: str, launch: Launch) -> None:
        """What cannot be had is mostly known soon; a machine that is being made takes minutes."""
        became = await self._waited(request, self._sky.limits.launch)
        if became["state"] == "failed":
            del self._started[launch.key]
            raise skypilot_fault(became["problem"], (launch.start_address,))

    async def _waited(self, request: str, seconds: float) -> dict[str, Any]:
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            became: dict[str, Any] = await self._sky.ask("request", request=request)
            if became["state"] != "going" or asyncio.get_running_loop().time() > deadline:
                return became
            await asyncio.sleep(self._sky.limits.look)

    async def _as_instance(self, instance_id: str, cluster: Mapping[str, Any], *, ask_job: bool) -> Instance:
        job = None
        if ask_job and cluster["status"] == "UP":
            job = await self._sky.ask("job", name=cluster["name"])
        state, detail = _state(cluster, job)
        location = [part for part in (cluster["cloud"], cluster["region"]) if part]
        return Instance(
            instance_id,
            cluster["name"],
            state,  # type: ignore[arg-type]
            detail,
            region="/".join(location).lower() or None,
            hourly=cluster["hourly"],
            billed_from=datetime.fromtimestamp(cluster["launched_at"], UTC),
        )


def _state(cluster: Mapping[str, Any], job: str | None) -> tuple[str, str]:
    if cluster["status"] == "UP":
        if job in _OVER:
            # The machine goes within a minute or two, or at once when it is ended.
            return "ended", f"The command ended: {job}."
        return "running", ""
    if cluster["status"] == "PENDING" or (cluster["status"] == "INIT" and not cluster["unhealthy"]):
        return "starting", cluster["detail"]
    if cluster["status"] == "AUTOSTOPPING":
        return "ended", "The command ended. The machine is being terminated."
    return "lost", cluster["detail"] or "The cloud provider stopped the machine."


def _parts(instance_id: str) -> tuple[str, str, bool]:
    key, _, rest = instance_id.partition("/")
    request, _, spot = rest.partition("/")
    return key, request, spot == "spot"

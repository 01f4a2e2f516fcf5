"""Jobs at Replicate: trainings of a Cog model that a person has pushed there once (`replicate_model`).

Replicate cannot run a command; it calls train() of that model, on the hardware that was chosen for it. The
key is an input, the address of the job as a secret input, which Replicate does not show again.
"""

import re
import shlex
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import datetime
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel, ConfigDict

from gpubloom.offers import PriceRow
from gpubloom.providers.cloud import (
    KEY_PREFIX,
    Capabilities,
    Capability,
    CloudProvider,
    CredentialField,
    Fault,
    FaultKind,
    Instance,
    InstanceState,
    Launch,
    SingleLaunch,
    remark_of,
    without_addresses,
)
from gpubloom.providers.http_client import HttpProviderSpec, ServiceHttp

ADDRESS = "https://api.replicate.com"
_PAGE = "https://replicate.com/p/"
_CALLS_EVERY_SECONDS = 0.05
_LAUNCHES_EVERY_SECONDS = 0.2
_PAUSE_SECONDS = 2.0
# How far back is looked for a training; a page has 100.
_PAGES = 10

# A state that is not known may cost: it counts as running.
_STATES: dict[str, InstanceState] = {
    "starting": "starting",
    "processing": "running",
    "succeeded": "ended",
    "failed": "ended",
    "canceled": "ended",
    # Given up by Replicate before it began.
    "aborted": "lost",
}

_WORD = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_MODEL = re.compile(rf"(?P<owner>{_WORD})/(?P<name>{_WORD}):(?P<version>[0-9a-zA-Z]{{8,128}})")
_DESTINATION = re.compile(rf"{_WORD}/{_WORD}")

CAPABILITIES = Capabilities(
    runs_unattended=Capability(True),
    live_prices=Capability(
        False, "Replicate's API does not return prices. GPU Bloom uses its built-in price list."
    ),
    several_gpus=Capability(
        False, "A training uses the hardware of its model, and the model asks for one GPU."
    ),
    several_nodes=Capability(False, "A training at Replicate runs on one machine."),
    spot=Capability(False, "Replicate bills by the second at one price. There are no spot instances."),
    # The training ends itself at its time limit, and with it the bill.
    switch_off=Capability(True),
)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Training(_Answer):
    """As Replicate describes one; what is not there yet is None."""

    id: str
    status: str
    input: dict[str, object] | None = None
    error: str | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None

    @property
    def key(self) -> str:
        key = (self.input or {}).get("key")
        return key if isinstance(key, str) and key.startswith(KEY_PREFIX) else ""


class TrainingPage(_Answer):
    results: list[Training]
    next: str | None = None


class Account(_Answer):
    username: str


class Replicate:
    """One account. `model` is OWNER/NAME:VERSION, `destination` OWNER/NAME."""

    name = "replicate"
    capabilities = CAPABILITIES

    def __init__(
        self,
        http: ServiceHttp,
        model: str,
        destination: str,
        gpu: str,
        *,
        pause_seconds: float = _PAUSE_SECONDS,
    ) -> None:
        found = _MODEL.fullmatch(model)
        assert found is not None, "checked when it is opened"
        self._http = http
        self._version = f"/v1/models/{found['owner']}/{found['name']}/versions/{found['version']}"
        self._destination = destination
        self._gpu = gpu
        self._pause_seconds = pause_seconds
        self._launches = SingleLaunch(self._find, lambda: http.rate_limit.sleep(self._pause_seconds))

    def __repr__(self) -> str:
        return "Replicate()"

    async def check(self) -> str:
        account = await self._http.read("GET", "/v1/account", Account)
        for path, what in (
            (self._version, "version of the model"),
            (f"/v1/models/{self._destination}", "destination"),
        ):
            try:
                await self._http.call("GET", path)
            except Fault as fault:
                if fault.kind != "gone":
                    raise
                raise Fault(
                    "refused",
                    f"Replicate does not have the {what}. Before you use the provider, push the model "
                    "that `bloom providers replicate-model` writes, and create the destination.",
                ) from None
        return account.username

    async def prices(self) -> list[PriceRow]:
        """None: see `capabilities.live_prices`."""
        return []

    async def submit(self, launch: Launch) -> Instance:
        assert launch.key.startswith(KEY_PREFIX), launch.key
        if launch.gpus != 1 or launch.gpu.casefold() != self._gpu.casefold():
            raise Fault(
                "refused",
                f"The model at Replicate runs on one {self._gpu}, not on {launch.gpus}× {launch.gpu}. "
                "Choose other hardware at Replicate and enter it under Providers, or choose another "
                "offer.",
            )
        return await self._launches.once(
            launch.key, lambda: self._launches.answered(launch.key, lambda: self._start(launch))
        )

    async def status(self, instance_id: str) -> Instance:
        training = await self._training(instance_id)
        if training is None:
            return Instance(instance_id, "", "ended", "Replicate no longer has this training.")
        return self._instance(training)

    async def cancel(self, instance_id: str) -> None:
        try:
            await self._http.call("POST", f"/v1/trainings/{instance_id}/cancel")
        except Fault as fault:
            if fault.kind == "gone":
                return
            # What has ended cannot be cancelled; that is what was wanted.
            if fault.kind != "refused" or (await self.status(instance_id)).state in ("starting", "running"):
                raise

    async def list(self) -> list[Instance]:
        found = [self._instance(training) async for training in self._trainings()]
        return [instance for instance in found if instance.state in ("starting", "running")]

    async def close(self) -> None:
        await self._http.close()

    async def _start(self, launch: Launch) -> Instance:
        body = {
            "destination": self._destination,
            "input": {
                "key": launch.key,
                "command": launch.command,
                "start": launch.start_address,
                "packages": shlex.join(launch.packages),
                "longest_seconds": int(launch.longest_seconds or 0),
            },
        }
        try:
            answer = await self._http.call(
                "POST", f"{self._version}/trainings", body=body, launch=True, hide=launch.confidential
            )
            return self._instance(self._http.understood(Training, answer))
        except Fault as fault:
            if fault.kind == "gone":
                raise Fault(
                    "refused",
                    "Replicate no longer has the model, its version or the destination. Enter valid "
                    "ones under Providers.",
                ) from None
            raise

    async def _find(self, key: str) -> Instance | None:
        async with aclosing(self._trainings()) as trainings:
            async for training in trainings:
                if training.key == key:
                    return self._instance(training)
        return None

    async def _trainings(self) -> AsyncGenerator[Training, None]:
        """Ours, the newest first."""
        query: dict[str, str | int] = {}
        for _ in range(_PAGES):
            page = await self._http.read("GET", "/v1/trainings", TrainingPage, query=query)
            for training in page.results:
                if training.key:
                    yield training
            # Only the cursor is taken from the address: the key goes to no other host.
            cursor = parse_qs(urlsplit(page.next or "").query).get("cursor")
            if not cursor:
                return
            query = {"cursor": cursor[0]}

    async def _training(self, instance_id: str) -> Training | None:
        try:
            return await self._http.read("GET", f"/v1/trainings/{instance_id}", Training)
        except Fault as fault:
            if fault.kind != "gone":
                raise
            return None

    def _instance(self, training: Training) -> Instance:
        def ours(moment: datetime | None) -> datetime | None:
            return None if moment is None else self._http.by_our_clock(moment)

        return Instance(
            training.id,
            training.key,
            _STATES.get(training.status, "running"),
            without_addresses(remark_of(training.error or training.status)),
            billed_from=ours(training.started_at),
            billed_to=ours(training.completed_at),
            page=f"{_PAGE}{training.id}",
        )


def _explain(status: int, found: object) -> tuple[FaultKind | None, str]:
    match found:
        case {"detail": str(detail)}:
            return None, detail
        case {"title": str(title)}:
            return None, title
    return None, ""


def _connect(http: ServiceHttp, given: Mapping[str, str]) -> CloudProvider:
    model, destination = given.get("model", ""), given.get("destination", "")
    if not _MODEL.fullmatch(model):
        raise Fault("bad_credentials", "Enter the model that you pushed to Replicate, as OWNER/NAME:VERSION.")
    if not _DESTINATION.fullmatch(destination):
        raise Fault("bad_credentials", "Enter a destination model at Replicate, as OWNER/NAME.")
    return Replicate(http, model, destination, given.get("gpu", ""))


PROVIDER = HttpProviderSpec(
    name="replicate",
    title="Replicate",
    fields=(
        CredentialField(
            "api_key",
            "API token",
            hint="Create an API token on the page API tokens of your Replicate account.",
        ),
        CredentialField(
            "model",
            "Model",
            secret=False,
            hint="OWNER/NAME:VERSION of the model that you pushed. `bloom providers "
            "replicate-model` writes this model.",
        ),
        CredentialField(
            "destination",
            "Destination",
            secret=False,
            hint="OWNER/NAME of your model that receives the results as new versions.",
        ),
        CredentialField(
            "gpu", "GPU", secret=False, hint="The GPU of the model: T4, L40S, A100 80GB or H100."
        ),
    ),
    capabilities=CAPABILITIES,
    page="https://replicate.com/account/api-tokens",
    address=ADDRESS,
    explain=_explain,
    calls_every=_CALLS_EVERY_SECONDS,
    launches_every=_LAUNCHES_EVERY_SECONDS,
    connect=_connect,
)

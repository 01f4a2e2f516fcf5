"""Instances at Lambda (cloud.lambda.ai), over its HTTP API.

An instance is billed from its launch until it is terminated through the API; switching it off from inside
does not stop the bill.
"""

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
    first_with_room,
    ignoring_gone,
)
from gpubloom.providers.cloud_init import user_data_script
from gpubloom.providers.http_client import HttpProviderSpec, ServiceHttp
from gpubloom.providers.lambda_cloud.machine_types import (
    NOT_BILLED,
    Answer,
    Launched,
    Machine,
    SshKey,
    TypeOnOffer,
    fitting,
    lies_in,
    price_rows,
    state_of,
)

ADDRESS = "https://cloud.lambda.ai"
_PAGE = "https://cloud.lambda.ai/instances"
_CALLS_EVERY_SECONDS = 1.0
_LAUNCHES_EVERY_SECONDS = 12.0
_TAG = "bloom-key"
# With CUDA drivers and Python 3.12; the default image has Python 3.10, which is too old for the engine.
_IMAGE = {"family": "lambda-stack-24-04"}
_LONGEST_NAME = 64
_OWN_SSH_KEY = "bloom"
_PAUSE_SECONDS = 2.0
# Free when it was asked for, and taken a second later: each further try waits for its turn.
_CANDIDATES_TRIED = 3

_CODES: dict[str, FaultKind] = {
    "instance-operations/launch/insufficient-capacity": "no_capacity",
    "global/quota-exceeded": "quota",
    "global/invalid-api-key": "bad_credentials",
    "global/account-inactive": "inactive_account",
    "global/invalid-address": "inactive_account",
    "global/object-does-not-exist": "gone",
}

CAPABILITIES = Capabilities(
    runs_unattended=Capability(True),
    live_prices=Capability(True),
    several_gpus=Capability(True),
    several_nodes=Capability(False, "Machines are rented one by one and cannot be combined for one job."),
    spot=Capability(False, "Lambda has on-demand prices only. There are no spot instances."),
    # An API key of Lambda can do everything: none is put on the machine to terminate itself.
    switch_off=Capability(
        False,
        "At its time limit the machine shuts down, but Lambda bills it until it is terminated. If this "
        "server never comes back, terminate it at cloud.lambda.ai.",
    ),
)


class LambdaCloud:
    """One account. `ssh_key`: the name of a key that the account has."""

    name = "lambda"
    capabilities = CAPABILITIES

    def __init__(
        self, http: ServiceHttp, ssh_key: str = "", *, pause_seconds: float = _PAUSE_SECONDS
    ) -> None:
        self._http = http
        self._ssh_key = ssh_key
        self._pause_seconds = pause_seconds
        self._launches = SingleLaunch(self._find, lambda: http.rate_limit.sleep(self._pause_seconds))

    def __repr__(self) -> str:
        return "LambdaCloud()"

    async def check(self) -> str:
        names = await self._ssh_key_names()
        if self._ssh_key and self._ssh_key not in names:
            there = ", ".join(names) or "none"
            raise Fault(
                "refused", f"Your Lambda account has no SSH key named {self._ssh_key!r}. Available: {there}."
            )
        return f"account with SSH key {', '.join(names)}" if names else "account without SSH keys"

    async def prices(self) -> list[PriceRow]:
        return list(price_rows((await self._types()).values(), datetime.now(UTC).date()))

    async def submit(self, launch: Launch) -> Instance:
        assert launch.key.startswith(KEY_PREFIX), launch.key
        assert len(launch.key) <= _LONGEST_NAME, launch.key
        return await self._launches.once(launch.key, lambda: self._start(launch))

    async def status(self, instance_id: str) -> Instance:
        try:
            answer = await self._http.read("GET", f"/api/v1/instances/{instance_id}", Answer[Machine])
        except Fault as fault:
            if fault.kind != "gone":
                raise
            return Instance(instance_id, "", "ended", "Lambda no longer has this machine.")
        return _instance(answer.data)

    async def cancel(self, instance_id: str) -> None:
        body = {"instance_ids": [instance_id]}
        with ignoring_gone():
            await self._http.call("POST", "/api/v1/instance-operations/terminate", body=body)

    async def list(self) -> list[Instance]:
        return [_instance(machine) for machine in await self._machines() if machine.status not in NOT_BILLED]

    async def close(self) -> None:
        await self._http.close()

    async def _start(self, launch: Launch) -> Instance:
        candidates = await self._candidates(launch)
        ssh_key = await self._usable_ssh_key()
        return await first_with_room(
            candidates[:_CANDIDATES_TRIED],
            lambda candidate: self._launches.answered(
                launch.key, lambda: self._launch(launch, *candidate, ssh_key)
            ),
        )

    async def _launch(
        self, launch: Launch, type_name: str, region: str, hourly: float, ssh_key: str
    ) -> Instance:
        body = {
            "region_name": region,
            "instance_type_name": type_name,
            "image": _IMAGE,
            "ssh_key_names": [ssh_key],
            "name": launch.key,
            "user_data": user_data_script(launch),
            "tags": [{"key": _TAG, "value": launch.key}],
        }
        answer = await self._http.call(
            "POST",
            "/api/v1/instance-operations/launch",
            body=body,
            launch=True,
            hide=launch.confidential,
        )
        identifier = self._http.understood(Answer[Launched], answer).data.instance_ids[0]
        return Instance(identifier, launch.key, "starting", region=region, hourly=hourly, page=_PAGE)

    async def _find(self, key: str) -> Instance | None:
        return next((machine for machine in await self.list() if machine.key == key), None)

    async def _machines(self) -> Sequence[Machine]:
        answer = await self._http.read("GET", "/api/v1/instances", Answer[list[Machine]])
        return [machine for machine in answer.data if _key_of(machine)]

    async def _types(self) -> dict[str, TypeOnOffer]:
        return (await self._http.read("GET", "/api/v1/instance-types", Answer[dict[str, TypeOnOffer]])).data

    async def _candidates(self, launch: Launch) -> Sequence[tuple[str, str, float]]:
        """Type, region and price of machines that fit and are free, the cheapest first; at least one."""
        fits = fitting((await self._types()).values(), launch.gpu, launch.gpus)
        wanted = f"{launch.gpus}× {launch.gpu}"
        if not fits:
            raise Fault("refused", f"Lambda has no machine with {wanted}. Choose another offer.")
        candidates = [
            (offered.instance_type.name, region, offered.instance_type.hourly)
            for offered in fits
            for region in offered.regions
            if lies_in(region, launch.region)
        ]
        if not candidates:
            where = f" in {launch.region}" if launch.region else ""
            raise Fault(
                "no_capacity",
                f"Lambda has no free machine with {wanted}{where}. Wait, or choose another offer.",
            )
        return candidates

    async def _usable_ssh_key(self) -> str:
        if self._ssh_key:
            return self._ssh_key
        names = await self._ssh_key_names()
        if names:
            return _OWN_SSH_KEY if _OWN_SSH_KEY in names else names[0]
        body = {"name": _OWN_SSH_KEY, "public_key": _public_key_of_nobody()}
        await self._http.call("POST", "/api/v1/ssh-keys", body=body)
        return _OWN_SSH_KEY

    async def _ssh_key_names(self) -> Sequence[str]:
        answer = await self._http.read("GET", "/api/v1/ssh-keys", Answer[list[SshKey]])
        return [key.name for key in answer.data]


def _key_of(machine: Machine) -> str:
    """Only what carries our tag is ours: people may call a machine of their own bloom-something."""
    return next((tag.value for tag in machine.tags if tag.key == _TAG), "")


def _instance(machine: Machine) -> Instance:
    """Lambda names no times, so none are told: the caller's clock counts what is billed."""
    state, detail = state_of(machine.status)
    return Instance(
        machine.id,
        _key_of(machine),
        state,
        detail,
        region=machine.region.name,
        hourly=machine.instance_type.hourly,
        page=_PAGE,
        host=machine.ip,
    )


def _public_key_of_nobody() -> str:
    """Lambda requires a key for every machine. The private key is discarded: it cannot log in."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = Ed25519PrivateKey.generate().public_key()
    return public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode() + " bloom"


def _explain(status: int, found: object) -> tuple[FaultKind | None, str]:
    """`code` is meant for programs, `message` may change at any time and is only shown."""
    match found:
        case {"error": {"code": str(code), "message": str(message)}}:
            kind = _CODES.get(code)
            if kind is None and code.startswith("provider/") and status != 429:
                kind = "unavailable"
            return kind, message
    return None, ""


PROVIDER = HttpProviderSpec(
    name="lambda",
    title="Lambda",
    fields=(
        CredentialField(
            "api_key", "API key", hint="Create an API key on the page API keys of the Lambda dashboard."
        ),
        CredentialField(
            "ssh_key",
            "SSH key name",
            secret=False,
            required=False,
            hint="Name of an SSH key of your Lambda account, to log in to the machines yourself. "
            "If empty, the first key is used.",
        ),
    ),
    capabilities=CAPABILITIES,
    page="https://cloud.lambda.ai/api-keys",
    address=ADDRESS,
    explain=_explain,
    calls_every=_CALLS_EVERY_SECONDS,
    launches_every=_LAUNCHES_EVERY_SECONDS,
    connect=lambda http, given: LambdaCloud(http, given.get("ssh_key", "")),
)

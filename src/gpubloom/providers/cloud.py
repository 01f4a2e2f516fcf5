"""What every cloud provider can do, in values that a worker keeps and compares.

A provider knows nothing of jobs. It is asked to start one command on one instance, under a key that the
caller chose, and to say later what became of it. Everything that the job reports goes through the bucket.

Also here, shared by all providers: the kinds of faults, offers that may be gone a second after they were
listed, and ambiguous requests: a launch whose answer was lost is looked for before anybody asks again.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol, TypeVar, runtime_checkable

from gpubloom.offers import PriceRow
from gpubloom.providers.base import ProviderError
from gpubloom.storage.ssh_store import SshAccess

# starting: asked for, nothing of ours runs yet. running: it is billed. ended: by itself or by us, not billed
# any more. lost: the provider took it away (preempted, unhealthy).
InstanceState = Literal["starting", "running", "ended", "lost"]

# Every key begins with it; `list` shows nothing else, so what people started themselves is never touched.
KEY_PREFIX = "bloom-"


@dataclass(frozen=True)
class Capability:
    """Whether a provider supports something. If not, `reason` is a sentence for users."""

    can: bool
    reason: str | None = None


@dataclass(frozen=True)
class Capabilities:
    """How providers differ. `runs_unattended`: jobs start without a person who opens a page there."""

    runs_unattended: Capability
    live_prices: Capability
    several_gpus: Capability
    several_nodes: Capability
    spot: Capability
    # The longest that one machine may live; a longer job is relaunched from its checkpoint.
    longest_seconds: float | None = None
    # Whether a machine ends its own bill at its time limit, also when no server is left to terminate it.
    switch_off: Capability = Capability(
        False,
        "If this server never comes back, the machine is billed until you terminate it at the provider.",
    )

    def why_not(self, launch: "Launch") -> str | None:
        """Why such a provider cannot do this launch; None: nothing here rules it out."""
        asked = (
            (launch.nodes > 1, self.several_nodes),
            (launch.gpus > 1, self.several_gpus),
            (launch.spot, self.spot),
        )
        return next((what.reason for wanted, what in asked if wanted and not what.can), None)


@dataclass(frozen=True)
class CredentialField:
    """One value that a person enters to connect a provider, such as an API key. Secrets are never shown."""

    name: str
    title: str
    secret: bool = True
    required: bool = True
    hint: str = ""


@dataclass(frozen=True)
class Prefetch:
    """What a job would download first. A provider that builds images may fetch it while it builds.

    `models`: names at the Hugging Face Hub; `datasets`: a name there and perhaps the name of a config;
    `addresses`: https addresses of files that are also in the job's bundle.
    """

    models: tuple[str, ...] = ()
    datasets: tuple[tuple[str, ...], ...] = ()
    addresses: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.models or self.datasets or self.addresses)


@dataclass(frozen=True)
class Launch:
    """One instance for one attempt of one job.

    `key` is unique to the attempt and begins with KEY_PREFIX; the instance carries it as name or tag.
    `command` is for a shell and starts the agent, given `start_address` in the environment as BLOOM_START.
    That address is a secret: it goes into no log, no error and no process list.
    """

    key: str
    gpu: str
    gpus: int
    command: str
    start_address: str = field(repr=False)
    region: str | None = None
    spot: bool = False
    disk_gb: int = 50
    packages: Sequence[str] = ()
    longest_seconds: float | None = None
    # Machines that work together, where a provider can start several (`Capabilities.why_not`).
    nodes: int = 1
    prefetch: Prefetch = Prefetch()
    # Environment variables for downloads, such as HF_TOKEN; as secret as the address.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    # Where the machine reports its start, by PUT; a secret as well. Empty: it cannot report.
    report_address: str = field(default="", repr=False)
    # How this server connects to the machine, where the machine's disk is the store of the job.
    ssh: SshAccess | None = None

    @property
    def confidential(self) -> tuple[str, ...]:
        """What no error may repeat, also if a provider quotes the request. The job's secrets stand behind the
        # of the start address, which a start script may hold in another form."""
        address, _, secrets = self.start_address.partition("#")
        host_key = "" if self.ssh is None else self.ssh.host_key.strip()
        found = (self.start_address, secrets, address, self.report_address, host_key, *self.secrets.values())
        return tuple(each for each in found if each)


@dataclass(frozen=True)
class Instance:
    """One instance, by the provider's own words and clock. `id` is the provider's, `key` is ours.

    `billed_from` and `billed_to`: None where the provider does not say; the caller's clock counts then.
    """

    id: str
    key: str
    state: InstanceState
    detail: str = ""
    region: str | None = None
    hourly: float | None = None
    billed_from: datetime | None = None
    billed_to: datetime | None = None
    # Where a person sees it at the service.
    page: str | None = None
    # Where its SSH port is reached; None: the provider does not say, or not yet.
    host: str | None = None
    port: int = 22


class CloudProvider(Protocol):
    """A cloud provider. One object per person and per set of credentials; every method raises Fault."""

    name: str
    capabilities: Capabilities

    async def check(self) -> str:
        """The name of the account behind the credentials. Raises Fault if they are wrong. Starts nothing."""

    async def prices(self) -> list[PriceRow]:
        """What the provider's GPUs cost now, by its own API; empty where it does not say."""

    async def submit(self, launch: Launch) -> Instance:
        """Start an instance, once: one that carries the key already is found and returned, whatever became of
        an earlier call. After a lost answer the instance is looked for before a Fault is raised."""

    async def status(self, instance_id: str) -> Instance:
        """What became of it. An instance that the provider does not know any more is `ended`."""

    async def cancel(self, instance_id: str) -> None:
        """Terminate it and end its bill. It is no fault if it has ended already."""

    async def list(self) -> list[Instance]:
        """Every instance of ours that the provider still bills or is about to."""

    async def close(self) -> None: ...


@runtime_checkable
class BillReader(Protocol):
    """A cloud provider whose API says what an instance really cost."""

    async def bill(self, instance_id: str) -> float | None:
        """US dollars, by the provider's own bill; None: the bill is not there yet."""


@runtime_checkable
class ConsoleReader(Protocol):
    """A cloud provider that shows what an instance, or the build of its image, printed."""

    async def console(self, instance_id: str) -> Sequence[str]:
        """The newest lines, oldest first; empty: nothing yet, or the instance is gone."""


@runtime_checkable
class StoreLister(Protocol):
    """A cloud provider whose own stores outlive the machines of their jobs."""

    async def stores(self) -> Sequence[str]:
        """The names of our stores: keys of machines, without the attempt."""

    async def remove_store(self, name: str) -> None:
        """Delete it with all its files. It is no fault if it is gone."""


# inactive_account: the credentials are right, but the account has no balance, payment or approval.
FaultKind = Literal[
    "no_capacity",
    "quota",
    "bad_credentials",
    "inactive_account",
    "rate_limited",
    "unavailable",
    "timed_out",
    "refused",
    "gone",
]

# Waiting may help by itself; the others need a person, or another offer.
_PASSES: frozenset[FaultKind] = frozenset({"no_capacity", "rate_limited", "unavailable", "timed_out"})


class Fault(ProviderError):
    """A provider could not do what was asked. The text is a sentence for the person who owns the job; it
    holds no credential and no presigned address.

    `uncertain`: the request may have been carried out all the same, because its answer never came.
    """

    def __init__(
        self,
        kind: FaultKind,
        sentence: str,
        *,
        retry_after_seconds: float | None = None,
        uncertain: bool = False,
    ) -> None:
        super().__init__(kind, sentence)
        self.kind = kind
        self.retry_after_seconds = retry_after_seconds
        self.uncertain = uncertain

    @property
    def passes(self) -> bool:
        """Whether trying again later can help."""
        return self.kind in _PASSES


_ADDRESS = re.compile(r"https?://\S+", re.IGNORECASE)
_LONGEST_REMARK = 300


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """A service may quote what it was sent."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "…")
    return text


def without_addresses(text: str) -> str:
    """An address may be presigned."""
    return _ADDRESS.sub("(an address)", text)


def remark_of(text: str, secrets: Iterable[str] = ()) -> str:
    """What a service said, in one line that is not too long."""
    line = " ".join(without_secrets(text, secrets).split())
    return line if len(line) <= _LONGEST_REMARK else f"{line[:_LONGEST_REMARK]}…"


Candidate = TypeVar("Candidate")


async def first_with_room(
    candidates: Sequence[Candidate], launch: Callable[[Candidate], Awaitable[Instance]]
) -> Instance:
    """An instance of the first candidate with capacity. The fault of the last one: none has."""
    *others, last = candidates
    for candidate in others:
        try:
            return await launch(candidate)
        except Fault as fault:
            if fault.kind != "no_capacity":
                raise
    return await launch(last)


# A provider's list can be some seconds behind.
_LOOKS = 3


class SingleLaunch:
    """Starts at most one instance per key, whatever becomes of requests and answers.

    `find` looks for a key among the provider's instances; `pause` waits before each look after a lost answer.
    """

    def __init__(
        self, find: Callable[[str], Awaitable[Instance | None]], pause: Callable[[], Awaitable[None]]
    ) -> None:
        self._find, self._pause = find, pause
        # Two launches with one key must not both find that there is none yet.
        self._lock = asyncio.Lock()

    async def once(self, key: str, launch: Callable[[], Awaitable[Instance]]) -> Instance:
        """The instance that carries the key, or the one that `launch` starts."""
        async with self._lock:
            found = await self._find(key)
            return await launch() if found is None else found

    async def answered(self, key: str, request: Callable[[], Awaitable[Instance]]) -> Instance:
        """The instance that a request started; looked for by its key when the answer was lost."""
        try:
            return await request()
        except Fault as fault:
            if not fault.uncertain:
                raise
            lost = fault
        for _ in range(_LOOKS):
            await self._pause()
            try:
                found = await self._find(key)
            except Fault as fault:
                if not fault.passes:
                    raise
                continue
            if found is not None:
                return found
        raise lost


@contextmanager
def ignoring_gone() -> Iterator[None]:
    """What the provider does not know any more needs no call to end it."""
    try:
        yield
    except Fault as fault:
        if fault.kind != "gone":
            raise

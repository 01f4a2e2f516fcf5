"""Ray: a job on a cluster that its owner runs already, through the Ray Jobs API. There is no bill.

The key is the job's submission id, which Ray gives to nobody twice. The start address is passed as a file in
the job's working directory, because Ray shows environment variables to everybody who may look at the cluster.
Nodes stay when a job is over, so the job's directory is removed there once all of it has arrived.
"""

import asyncio
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from gpubloom.egress import EgressRefused, Policy
from gpubloom.offers import PriceRow
from gpubloom.providers.cloud import (
    KEY_PREFIX,
    Capabilities,
    Capability,
    CredentialField,
    Fault,
    FaultKind,
    Instance,
    InstanceState,
    Launch,
    ignoring_gone,
    remark_of,
)
from gpubloom.providers.registry import ProviderSpec

if TYPE_CHECKING:
    from ray.job_submission import JobDetails, JobSubmissionClient

    from gpubloom.providers.ray.client import EgressJobClient

_Instances: TypeAlias = list[Instance]
Answer = TypeVar("Answer")

_CALL_SECONDS = 30.0
_START_FILE = "bloom-start"
_MEMORY_GB = {
    "T4": 16.0,
    "L4": 24.0,
    "A10": 24.0,
    "L40S": 48.0,
    "V100": 16.0,
    "A100 40GB": 40.0,
    "A100 80GB": 80.0,
    "H100": 80.0,
    "H200": 141.0,
    "B200": 192.0,
}
# What Ray's nodes call them, where that differs.
_RAY_NAMES = {"A10": "A10G", "A100 40GB": "A100-40G", "A100 80GB": "A100-80G"}

_CAPABILITIES = Capabilities(
    runs_unattended=Capability(True),
    live_prices=Capability(False, "The cluster is your own. Ray does not know what its machines cost."),
    several_gpus=Capability(True),
    several_nodes=Capability(
        False, "A Ray job starts on one node. To train on several nodes, use `bloom train --ray`."
    ),
    spot=Capability(False, "The cluster is your own and has no prices."),
    # Nothing is billed.
    switch_off=Capability(True),
)


@dataclass(frozen=True)
class _RayKind(ProviderSpec):
    def why_not(self) -> str | None:
        if find_spec("ray") is None:
            return "Ray is not installed on the server. Install it with: pip install 'gpubloom[ray]'"
        return None

    def open(self, credentials: Mapping[str, str]) -> "RayProvider":
        token = credentials.get("token") or None
        if address := credentials.get("address"):
            return RayProvider(address, token)
        address = os.environ.get("RAY_ADDRESS", "")
        return RayProvider(address, token, policy=Policy.of_operator(address))


PROVIDER = _RayKind(
    name="ray",
    title="Ray cluster",
    fields=(
        CredentialField(
            "address",
            "Dashboard address",
            secret=False,
            required=False,
            hint="For example http://head:8265. If empty, RAY_ADDRESS of this server is used.",
        ),
        CredentialField(
            "token", "Token", required=False, hint="Only needed if the cluster or a proxy requires a token."
        ),
    ),
    capabilities=_CAPABILITIES,
    page="https://docs.ray.io/en/latest/cluster/running-applications/job-submission/index.html",
)


class RayProvider:
    """One cluster. Every call has a limit of time; the client's own have none."""

    name = "ray"
    capabilities = _CAPABILITIES

    def __init__(
        self,
        address: str,
        token: str | None = None,
        seconds: float = _CALL_SECONDS,
        policy: Policy | None = None,
    ) -> None:
        self._address = address
        self._token = token
        self._policy = policy or Policy.of_operator()
        self._seconds = seconds
        self._connection: _Connection | None = None

    async def check(self) -> str:
        version = await self._ask("report its version", lambda client: str(client.get_version()))
        return f"Ray {version} at {urlsplit(self._address).netloc}"

    async def prices(self) -> list[PriceRow]:
        """What GPUs the cluster has, for nothing."""
        nodes = await self._ask("list its nodes", _read_nodes)
        rows: dict[tuple[str, int], PriceRow] = {}
        for node in nodes:
            resources = node.get("resources_total") or {}
            gpus = int(resources.get("GPU", 0))
            if (gpu := _gpu_of(resources)) is None or gpus < 1:
                continue
            rows[gpu, gpus] = PriceRow(
                provider=self.name,
                gpu=gpu,
                gpus=gpus,
                memory_gb=_MEMORY_GB[gpu],
                kind="free",
                hourly=0,
                source=self._address,
                read_on=datetime.now(UTC).date(),
                availability="immediate",
            )
        return list(rows.values())

    async def submit(self, launch: Launch) -> Instance:
        if found := await self._find(launch.key):
            return found
        doing = f"start a job with {launch.gpus} × {launch.gpu}" if launch.gpus else "start a job"
        try:
            await self._ask(doing, lambda client: _submit(client, launch), launch.confidential)
        except Fault as fault:
            # The id is taken, or the answer was lost on the way: either way it may be there.
            try:
                found = await self._find(launch.key)
            except Fault:
                raise fault from None
            if found is None:
                raise
            return found
        return await self.status(launch.key)

    async def status(self, instance_id: str) -> Instance:
        found = await self._find(instance_id)
        return found or Instance(instance_id, instance_id, "ended", "The Ray cluster does not have this job.")

    async def cancel(self, instance_id: str) -> None:
        with ignoring_gone():
            await self._ask("stop a job", lambda client: client.stop_job(instance_id))

    async def list(self) -> _Instances:
        return await self._ask("list its jobs", _read_instances)

    async def close(self) -> None:
        self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _find(self, key: str) -> Instance | None:
        try:
            return await self._ask(
                "report the state of a job", lambda client: _instance(client.get_job_info(key))
            )
        except Fault as fault:
            if fault.kind != "gone":
                raise
            return None

    async def _ask(
        self, doing: str, call: "Callable[[JobSubmissionClient], Answer]", hide: Sequence[str] = ()
    ) -> Answer:
        """The client may wait for longer, in a thread; the caller waits for that thread up to the limit.

        What the cluster answers is read there, too: whatever is wrong with it is a Fault.
        """
        if not self._address:
            raise Fault(
                "refused",
                "The address of the Ray cluster is missing. Enter it under Providers, or set "
                "RAY_ADDRESS on the server.",
            )

        connection = self._connection = self._connection or _Connection(self._policy, self._seconds)

        def calling() -> Answer:
            return call(connection.client(self._address, self._token))

        try:
            return await asyncio.wait_for(
                asyncio.get_running_loop().run_in_executor(connection.thread, calling), self._seconds
            )
        except TimeoutError:
            self._disconnect()
            fault = Fault(
                "timed_out",
                f"The Ray cluster did not {doing} within {self._seconds:g} s.",
                uncertain=True,
            )
        except Exception as problem:  # noqa: BLE001 - Ray's client raises what its HTTP client does, and more
            if not has_gone(problem):
                self._disconnect()
            fault = fault_of(problem, doing, hide=(*hide, self._token or ""))
        # Outside of the handler: the request, with the token in its headers, hangs on to what was caught.
        raise fault


class _Connection:
    """Ray's client with a thread of its own: a cluster that does not answer takes none of the threads that
    other jobs need. `close` also ends a call that is under way."""

    def __init__(self, policy: Policy, seconds: float) -> None:
        from gpubloom.egress.clients import client

        self.thread = ThreadPoolExecutor(1, thread_name_prefix="ray")
        self._policy = policy
        self._http = client(policy, timeout=seconds, follow_redirects=False)
        self._client: EgressJobClient | None = None

    def client(self, address: str, token: str | None) -> "EgressJobClient":
        """In the thread: it is connected when it is first asked for."""
        if self._client is None:
            # Before Ray sees it: Ray imports a module that is named like an unknown scheme.
            self._policy.check_address(address)
            from gpubloom.providers.ray.client import EgressJobClient

            self._client = EgressJobClient(address, token, self._http)
        return self._client

    def close(self) -> None:
        self.thread.shutdown(wait=False, cancel_futures=True)
        self._http.close()


def _submit(client: "JobSubmissionClient", launch: Launch) -> str:
    with tempfile.TemporaryDirectory(prefix="bloom-ray-") as folder:
        file = Path(folder, _START_FILE)
        file.touch(0o600)
        file.write_text(launch.start_address, encoding="utf-8")
        reading = f'BLOOM_START="$(cat {_START_FILE})" && rm -f {_START_FILE} && export BLOOM_START'
        keeping = f'export BLOOM_JOB_FOLDER="${{BLOOM_JOB_FOLDER:-$HOME/bloom-jobs}}/{launch.key}"'
        kind = _RAY_NAMES.get(launch.gpu, launch.gpu)
        runtime: dict[str, Any] = {"working_dir": folder}
        if launch.packages:
            runtime["pip"] = list(launch.packages)
        return client.submit_job(
            # What did not arrive stays: the agent ends with 0 only when everything was delivered.
            entrypoint=f'{reading} && {keeping} && {{ {launch.command}\n}} && rm -rf "$BLOOM_JOB_FOLDER"',
            submission_id=launch.key,
            runtime_env=runtime,
            entrypoint_num_cpus=1,
            entrypoint_num_gpus=launch.gpus or None,
            # A trace of the kind of GPU leads the job to a node that has it.
            entrypoint_resources={f"accelerator_type:{kind}": 0.001} if launch.gpus and launch.gpu else None,
        )


def _read_nodes(client: "JobSubmissionClient") -> list[dict[str, Any]]:
    answer = client._do_request("GET", "/api/v0/nodes?detail=1&limit=1000")
    if answer.status_code != 200:
        client._raise_error(answer)
    found = answer.json()["data"]["result"]["result"]
    return [node for node in found if node.get("state") == "ALIVE"]


def _read_instances(client: "JobSubmissionClient") -> _Instances:
    ours = [job for job in client.list_jobs() if (job.submission_id or "").startswith(KEY_PREFIX)]
    return [_instance(job) for job in ours if not job.status.is_terminal()]


def _gpu_of(resources: Mapping[str, float]) -> str | None:
    names = {ray: ours for ours, ray in _RAY_NAMES.items()}
    for resource in resources:
        kind = resource.removeprefix("accelerator_type:")
        if kind != resource and (ours := names.get(kind, kind)) in _MEMORY_GB:
            return ours
    return None


def _instance(job: "JobDetails") -> Instance:
    key, status = job.submission_id or "", str(job.status)
    state: InstanceState = {"PENDING": "starting", "RUNNING": "running"}.get(status, "ended")  # type: ignore[assignment]
    if status == "FAILED" and was_lost(job.message or ""):
        state = "lost"
    return Instance(
        id=key,
        key=key,
        state=state,
        detail=job.message or "",
        hourly=0.0,
        billed_from=_moment(job.start_time),
        billed_to=_moment(job.end_time) if job.status.is_terminal() else None,
    )


def _moment(milliseconds: int | None) -> datetime | None:
    return None if not milliseconds else datetime.fromtimestamp(milliseconds / 1000, UTC)


_STATUS = re.compile(r"status code (\d{3})")
_KINDS: dict[int, FaultKind] = {
    401: "bad_credentials",
    403: "bad_credentials",
    404: "gone",
    408: "timed_out",
    429: "rate_limited",
    502: "unavailable",
    503: "unavailable",
    504: "timed_out",
}
# Of the HTTP client.
_CONNECTION_ERRORS = {"ConnectError", "ReadError", "WriteError", "RemoteProtocolError"}
# Of a job whose node, and not whose command, ended it.
_LOST = ("node", "supervisor actor", "actor died", "worker died", "preempted", "head")


def fault_of(problem: BaseException, doing: str, hide: Sequence[str] = ()) -> Fault:
    """The fault of a failed call. Its message contains nothing from `hide`."""
    remark = remark_of(str(problem), hide)
    if isinstance(problem, EgressRefused):
        return Fault("refused", f"The Ray cluster cannot be called: {remark}")
    kind = _kind(problem)
    return Fault(
        kind, f"The Ray cluster could not {doing}: {remark}", uncertain=kind in {"timed_out", "unavailable"}
    )


def has_gone(problem: BaseException) -> bool:
    return _kind(problem) == "gone"


def was_lost(message: str) -> bool:
    """Whether a failed job was lost with its node, judged from Ray's message."""
    words = message.lower()
    return "exit code" not in words and any(sign in words for sign in _LOST)


def _kind(problem: BaseException) -> FaultKind:
    if (found := _STATUS.search(str(problem))) is not None:
        return _KINDS.get(int(found[1]), "refused")
    name = type(problem).__name__
    if name == "AuthenticationError":
        return "bad_credentials"
    if "Timeout" in name:
        return "timed_out"
    if isinstance(problem, ConnectionError | OSError) or name in _CONNECTION_ERRORS:
        return "unavailable"
    return "refused"

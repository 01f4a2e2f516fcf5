"""Modal: a job is one sandbox, a container that lives as long as its command, at most 24 hours.

The key is the sandbox's name, which Modal lets nobody else have while it runs, and a tag, by which it is
found again. A sandbox that has ended is not found by its tag: whoever asks for a machine again, after a
process was lost, looks into the bucket first, where the end of a job lies.
"""

import asyncio
import math
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

from gpubloom.agent.remote.link import VOLUME_SCHEME, VOLUME_VARIABLE
from gpubloom.offers import PriceRow
from gpubloom.providers.cloud import (
    KEY_PREFIX,
    Capabilities,
    Capability,
    CredentialField,
    Fault,
    Instance,
    Launch,
    Prefetch,
    ignoring_gone,
    without_secrets,
)
from gpubloom.providers.modal.build_log import listening_to_build
from gpubloom.providers.modal.connection import (
    KEY_TAG,
    ModalConnection,
    SaidNothing,
    TimeLimits,
    give_up,
    raised_by_calls,
)
from gpubloom.providers.modal.image import job_image
from gpubloom.providers.modal.volume_store import ModalVolumeStore, volume_name
from gpubloom.providers.registry import ProviderSpec

if TYPE_CHECKING:
    import modal

# A provider has a method named list.
_Instances: TypeAlias = list[Instance]
# As the SDK declares it.
_Mounts: TypeAlias = "dict[str | os.PathLike[Any], modal.Volume | modal.CloudBucketMount]"

_OURS = {"gpubloom": "job"}
_LONGEST_SECONDS = 86_400
# Where a sandbox has the Volume with the files of its job.
_MOUNT = "/mnt/bloom"

_GPUS = {
    "T4": "T4",
    "L4": "L4",
    "A10": "A10",
    "L40S": "L40S",
    "A100 40GB": "A100-40GB",
    "A100 80GB": "A100-80GB",
    "H100": "H100",
    "H200": "H200",
    "B200": "B200",
}
_REGIONS = {"asia": "ap"}
_MOST_GPUS = 8
_FEWER_GPUS = {"A10": 4}

# Asked for beside each GPU; more is used and billed as it is needed. The default, an eighth of a core, would
# starve the GPU.
_CORES = 2.0
_BUILD_LINES = 60
_MEMORY_MB = 4_096

_NOT_PREFETCHED = (
    "Models or datasets could not be fetched while the image was built. The job downloads them itself."
)

_CAPABILITIES = Capabilities(
    runs_unattended=Capability(True),
    live_prices=Capability(
        False, "Modal publishes its prices only on its website. GPU Bloom uses its built-in price list."
    ),
    several_gpus=Capability(True),
    several_nodes=Capability(False, "A Modal sandbox is one container on one machine."),
    spot=Capability(False, "Modal has one price per GPU type. There are no spot instances."),
    longest_seconds=_LONGEST_SECONDS,
    # Every sandbox is created with a timeout, which Modal enforces.
    switch_off=Capability(True),
)


@dataclass(frozen=True)
class _ModalKind(ProviderSpec):
    def why_not(self) -> str | None:
        if find_spec("modal") is None:
            return (
                "Modal's Python client is not installed on the server. Install it with: pip install "
                "'gpubloom[modal]'"
            )
        return None

    def open(self, credentials: Mapping[str, str]) -> "ModalProvider":
        return ModalProvider(
            credentials["token_id"], credentials["token_secret"], credentials.get("environment") or None
        )

    def open_store(self, key: str, credentials: Callable[[], Mapping[str, str]]) -> ModalVolumeStore:
        return ModalVolumeStore(key, credentials)


PROVIDER = _ModalKind(
    name="modal",
    title="Modal",
    fields=(
        CredentialField("token_id", "Token ID", hint="Begins with ak-."),
        CredentialField("token_secret", "Token secret", hint="Begins with as-."),
        CredentialField(
            "environment",
            "Environment",
            secret=False,
            required=False,
            hint="Modal environment. If empty, the default environment of your workspace is used.",
        ),
    ),
    capabilities=_CAPABILITIES,
    page="https://modal.com/settings/tokens",
)


class ModalProvider:
    """One person's Modal. Keep it open: a client is a connection."""

    name = "modal"
    capabilities = _CAPABILITIES

    def __init__(
        self,
        token_id: str,
        token_secret: str,
        environment: str | None = None,
        limits: TimeLimits | None = None,
    ) -> None:
        self._modal = ModalConnection(token_id, token_secret, environment, limits or TimeLimits())
        self._environment = environment
        # What was started or seen here, by its id.
        self._keys: dict[str, str] = {}
        self._ended_by_us: set[str] = set()
        # What was printed while the image of a key was built.
        self._build_logs: dict[str, deque[str]] = {}

    async def check(self) -> str:
        import modal

        workspace = modal.Workspace.from_context(client=await self._modal.client())
        await self._modal.ask("report the owner of the token", workspace.hydrate.aio())
        return workspace.name or "Modal"

    async def prices(self) -> list[PriceRow]:
        return []

    async def submit(self, launch: Launch) -> Instance:
        import modal

        gpu = _gpu(launch)
        for sandbox_id, key in self._keys.items():
            if key == launch.key:
                return await self.status(sandbox_id)
        app = await self._modal.app(create=True)
        assert app is not None
        if found := await self._find(app, launch.key):
            return found
        image, note = await self._image(app, launch)
        volumes, environment = await self._volumes(launch)
        creating = asyncio.ensure_future(
            modal.Sandbox.create.aio(
                "sh",
                "-c",
                launch.command,
                app=app,
                name=launch.key,
                tags={**_OURS, KEY_TAG: launch.key},
                image=image,
                secrets=[modal.Secret.from_dict({**environment, **launch.secrets})],
                volumes=volumes,
                gpu=f"{gpu}:{launch.gpus}",
                cpu=_CORES * launch.gpus,
                memory=_MEMORY_MB * launch.gpus,
                timeout=_timeout(launch),
                region=_REGIONS.get(launch.region, launch.region) if launch.region else None,
                client=await self._modal.client(),
            )
        )
        doing = f"start a sandbox with {launch.gpus} × {launch.gpu}"
        try:
            created = await self._created(creating, app, launch)
            return replace(created, detail=note) if note else created
        except raised_by_calls() as problem:
            fault = self._modal.fault(problem, doing, launch.start_address, *launch.secrets.values())
            # The name is taken: by an earlier call, or by the SDK's own second try of this one.
            taken = isinstance(problem, modal.exception.AlreadyExistsError)
            found = await self._found_after_all(app, launch.key) if taken or fault.uncertain else None
            if found is None:
                raise fault from None
            return found

    async def status(self, instance_id: str) -> Instance:
        import modal

        try:
            client = await self._modal.client()
            sandbox = await self._modal.ask(
                "report the state of a sandbox", modal.Sandbox.from_id.aio(instance_id, client)
            )
            return await self._instance(sandbox)
        except Fault as fault:
            if fault.kind != "gone":
                raise
            detail = "Modal no longer has this sandbox."
            return Instance(instance_id, self._keys.get(instance_id, ""), "ended", detail)

    async def cancel(self, instance_id: str) -> None:
        import modal

        client = await self._modal.client()
        with ignoring_gone():
            sandbox = await self._modal.ask("find a sandbox", modal.Sandbox.from_id.aio(instance_id, client))
            self._ended_by_us.add(instance_id)
            await self._modal.ask("terminate a sandbox", sandbox.terminate.aio())

    async def list(self) -> _Instances:
        app = await self._modal.app(create=False)
        return [] if app is None else await self._listed(app, _OURS)

    async def stores(self) -> Sequence[str]:
        import modal

        found = await self._modal.ask(
            "list volumes",
            modal.Volume.objects.list.aio(
                environment_name=self._environment or "", client=await self._modal.client()
            ),
        )
        return [volume.name for volume in found if volume.name and volume.name.startswith(KEY_PREFIX)]

    async def remove_store(self, name: str) -> None:
        import modal

        await self._modal.ask(
            "delete a volume",
            modal.Volume.objects.delete.aio(
                name,
                allow_missing=True,
                environment_name=self._environment,
                client=await self._modal.client(),
            ),
        )

    async def console(self, instance_id: str) -> Sequence[str]:
        """The build of the image, by the key of the launch or by the sandbox that runs on it."""
        return list(self._build_logs.get(self._keys.get(instance_id, instance_id), ()))

    async def close(self) -> None:
        await self._modal.close()

    # Steps of the above

    async def _volumes(self, launch: Launch) -> tuple["_Mounts", dict[str, str]]:
        """The Volume with the files of the job, where they are in one, and the variables that lead there."""
        import modal

        if not launch.start_address.startswith(VOLUME_SCHEME):
            return {}, {"BLOOM_START": launch.start_address}
        volume = modal.Volume.from_name(
            volume_name(launch.key),
            environment_name=self._environment,
            version=2,
            client=await self._modal.client(),
        )
        name = launch.start_address.removeprefix(VOLUME_SCHEME)
        start = f"file://{_MOUNT}/{name}"
        return {_MOUNT: volume}, {"BLOOM_START": start, VOLUME_VARIABLE: _MOUNT}

    async def _image(self, app: "modal.App", launch: Launch) -> tuple["modal.Image", str]:
        """The image, and a sentence if it lacks what should have been fetched: the job then downloads it
        itself. A name that was read from a script may be of something else."""
        import modal

        packages = tuple(launch.packages)
        # Downloads get what is meant for them, never the address of the job.
        secrets = [modal.Secret.from_dict(dict(launch.secrets))] if launch.secrets else []
        if launch.prefetch:
            image = job_image(packages, launch.prefetch, secrets)
            try:
                return await self._built(app, image, launch), ""
            except Fault as fault:
                if fault.kind != "refused":
                    raise
        image = await self._built(app, job_image(packages, Prefetch(), []), launch)
        return image, _NOT_PREFETCHED if launch.prefetch else ""

    async def _built(self, app: "modal.App", image: "modal.Image", launch: Launch) -> "modal.Image":
        lines = self._build_logs.setdefault(launch.key, deque(maxlen=_BUILD_LINES))
        secrets = (launch.start_address, *launch.secrets.values())
        try:
            with listening_to_build(lambda line: lines.append(without_secrets(line, secrets))):
                return await self._modal.within(self._modal.limits.image, image.build.aio(app))
        except raised_by_calls() as problem:
            hidden = tuple(launch.secrets.values())
            raise self._modal.fault(problem, "install the job's packages", *hidden) from None

    async def _created(
        self, creating: "asyncio.Future[modal.Sandbox]", app: "modal.App", launch: Launch
    ) -> Instance:
        """Waits for the machine. One that is not there in time is given up, and the SDK ends what waits."""
        try:
            await asyncio.wait({creating}, timeout=self._modal.limits.machine)
            if creating.done():
                sandbox = creating.result()
                self._keys[sandbox.object_id] = launch.key
                return self._as_instance(sandbox, launch.key, launch.region)
            waited = await self._perhaps(app, launch.key)
        finally:
            give_up(creating)
        await asyncio.wait({creating}, timeout=self._modal.limits.clean_up)
        if found := await self._perhaps(app, launch.key):
            return found
        if waited is not None:
            wanted = f"{launch.gpus} × {launch.gpu}"
            minutes = f"{self._modal.limits.machine / 60:.0f} minutes"
            raise Fault("no_capacity", f"Modal had no free {wanted} within {minutes}. Nothing was started.")
        raise SaidNothing

    async def _found_after_all(self, app: "modal.App", key: str) -> Instance | None:
        """What an answer that was lost on the way would have said; None where that cannot be known."""
        for pause in self._modal.limits.look_again:
            await asyncio.sleep(pause)
            if found := await self._perhaps(app, key):
                return found
        return None

    async def _perhaps(self, app: "modal.App", key: str) -> Instance | None:
        try:
            return await self._find(app, key)
        except Fault:
            return None

    async def _find(self, app: "modal.App", key: str) -> Instance | None:
        found = await self._listed(app, {KEY_TAG: key})
        return found[0] if found else None

    async def _listed(self, app: "modal.App", tags: dict[str, str]) -> _Instances:
        import modal

        client = await self._modal.client()

        async def walk() -> "list[modal.Sandbox]":
            found = modal.Sandbox.list.aio(app_id=app.app_id, tags=tags, client=client)
            return [sandbox async for sandbox in found]

        sandboxes = await self._modal.ask("list sandboxes", walk())
        return [await self._instance(sandbox) for sandbox in sandboxes]

    async def _instance(self, sandbox: "modal.Sandbox") -> Instance:
        if sandbox.object_id not in self._keys:
            tags = await self._modal.ask("read a sandbox's tags", sandbox.get_tags.aio())
            self._keys[sandbox.object_id] = tags.get(KEY_TAG, "")
        return self._as_instance(sandbox, self._keys[sandbox.object_id])

    def _as_instance(self, sandbox: "modal.Sandbox", key: str, region: str | None = None) -> Instance:
        code = sandbox.returncode
        page = f"https://modal.com/id/{sandbox.object_id}"
        if code is None:
            return Instance(sandbox.object_id, key, "running", region=region, page=page)
        # The SDK's codes for what Modal ended: after its time, and otherwise.
        if code == 124:
            return Instance(
                sandbox.object_id,
                key,
                "ended",
                "The sandbox reached its time limit and was terminated.",
                page=page,
            )
        if code == 137 and sandbox.object_id not in self._ended_by_us:
            return Instance(sandbox.object_id, key, "lost", "Modal terminated the sandbox.", page=page)
        return Instance(
            sandbox.object_id, key, "ended", f"The command ended with exit code {code}.", page=page
        )


def _gpu(launch: Launch) -> str:
    if launch.gpu not in _GPUS:
        raise Fault("refused", f"Modal has no GPU {launch.gpu!r}. Available: {', '.join(_GPUS)}.")
    most = _FEWER_GPUS.get(launch.gpu, _MOST_GPUS)
    if not 1 <= launch.gpus <= most:
        raise Fault("refused", f"Modal allows 1 to {most} {launch.gpu} per job, not {launch.gpus}.")
    return _GPUS[launch.gpu]


def _timeout(launch: Launch) -> int:
    wanted = launch.longest_seconds or _LONGEST_SECONDS
    return min(max(math.ceil(wanted), 60), _LONGEST_SECONDS)

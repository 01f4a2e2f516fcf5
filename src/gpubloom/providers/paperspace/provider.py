"""Instances at Paperspace, over api.paperspace.com/v1.

A machine that is off still pays for its disk, so at the end it is deleted, and its startup script with it,
which holds the address of the job.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from gpubloom.offers import PriceRow
from gpubloom.providers.cloud import (
    Capabilities,
    Capability,
    CredentialField,
    Fault,
    Instance,
    Launch,
    SingleLaunch,
    first_with_room,
)
from gpubloom.providers.cloud_init import user_data_script
from gpubloom.providers.http_client import HttpProviderSpec
from gpubloom.providers.paperspace.api_client import PaperspaceApi, explain
from gpubloom.providers.paperspace.machine_types import (
    Machine,
    Template,
    best_template,
    disk_size,
    is_ours,
    regions_of,
    state_of,
    type_of,
)

ADDRESS = "https://api.paperspace.com/v1"
_PAGE = "https://console.paperspace.com/machines"
# Its limits are not published; these are careful.
_CALLS_EVERY_SECONDS = 1.0
_LAUNCHES_EVERY_SECONDS = 5.0
_PAUSE_SECONDS = 2.0
# A script without a machine may belong to a launch that is under way.
_SCRIPT_MAY_WAIT = timedelta(hours=1)

CAPABILITIES = Capabilities(
    runs_unattended=Capability(True),
    live_prices=Capability(False, "Paperspace shows the price of a machine only after it is rented."),
    several_gpus=Capability(True),
    several_nodes=Capability(False, "Machines are rented one by one and cannot be combined for one job."),
    spot=Capability(False, "Paperspace has on-demand prices only. There are no spot instances."),
    switch_off=Capability(
        False,
        "At its time limit the machine shuts down, but Paperspace bills its disk until the machine is "
        "deleted. If this server never comes back, delete it in the Paperspace console.",
    ),
)


class Paperspace:
    """One team. `template`: the id of the template that machines are made from; empty: the best there is."""

    name = "paperspace"
    capabilities = CAPABILITIES

    def __init__(
        self, api: PaperspaceApi, template: str = "", *, pause_seconds: float = _PAUSE_SECONDS
    ) -> None:
        self._api = api
        self._template = template
        self._pause_seconds = pause_seconds
        self._launches = SingleLaunch(self._find, lambda: api.pause(self._pause_seconds))

    def __repr__(self) -> str:
        return "Paperspace()"

    async def check(self) -> str:
        session = await self._api.session()
        if session is None:
            raise Fault("bad_credentials", "Paperspace does not accept this API key. Enter another one.")
        return f"{session.user.email}, team {session.team.namespace}"

    async def prices(self) -> list[PriceRow]:
        """Always empty: see `capabilities.live_prices`."""
        return []

    async def submit(self, launch: Launch) -> Instance:
        assert is_ours(launch.key), f"{launch.key} would not be found again"
        return await self._launches.once(launch.key, lambda: self._start(launch))

    async def status(self, instance_id: str) -> Instance:
        machine = await self._api.machine(instance_id)
        if machine is None:
            return Instance(instance_id, "", "ended", "Paperspace no longer has this machine.")
        found = self._instance(machine)
        if found.state != "starting":
            return found
        # A machine is promised before there is one: that none was free comes out only afterwards.
        failed = [event for event in await self._api.events(instance_id) if event.start_failed]
        if not failed:
            return found
        reason = failed[0].error or "no reason given"
        return replace(found, state="lost", detail=f"Paperspace could not start the machine: {reason}.")

    async def cancel(self, instance_id: str) -> None:
        machine = await self._api.machine(instance_id)
        if machine is not None and machine.dt_deleted is None:
            await self._api.delete_machine(instance_id)
        await self._delete_scripts("" if machine is None else machine.name)

    async def list(self) -> list[Instance]:
        return [self._instance(machine) for machine in await self._api.machines()]

    async def close(self) -> None:
        await self._api.close()

    async def _start(self, launch: Launch) -> Instance:
        machine_type, regions = _wanted(launch)
        template = await self._usable_template(machine_type)
        # One that an earlier call left may hold an address that is good no more.
        await self._delete_scripts(launch.key)
        body = {
            "name": launch.key,
            "machineType": machine_type,
            "templateId": self._template if template is None else template.id,
            "diskSize": disk_size(launch.disk_gb, template),
            "startupScriptId": await self._new_script(launch),
            "publicIpType": "dynamic",
            "startOnCreate": True,
            "autoShutdownEnabled": False,
            "autoSnapshotEnabled": False,
            "takeInitialSnapshot": False,
            "emailPassword": False,
        }
        try:
            return await first_with_room(
                regions, lambda region: self._launch(launch.key, {**body, "region": region})
            )
        except Fault as fault:
            if not fault.uncertain:
                with suppress(Fault):
                    await self._delete_scripts(launch.key)
            raise

    async def _launch(self, key: str, body: Mapping[str, object]) -> Instance:
        async def request() -> Instance:
            return self._instance(await self._api.make_machine(body))

        return await self._launches.answered(key, request)

    async def _new_script(self, launch: Launch) -> str:
        try:
            made = await self._api.make_script(launch.key, user_data_script(launch), launch.confidential)
        except Fault as fault:
            if not fault.uncertain:
                raise
            lost = fault
        else:
            return made.id
        for script in await self._api.scripts():
            if script.name == launch.key:
                return script.id
        # No machine was asked for yet, so nothing that is billed can have come of it.
        raise Fault(lost.kind, str(lost), retry_after_seconds=lost.retry_after_seconds)

    async def _delete_scripts(self, key: str) -> None:
        """Those of this key, and what was left behind when deleting one failed."""
        scripts = await self._api.scripts()
        if not scripts:
            return
        kept = {machine.name for machine in await self._api.machines()}
        old = datetime.now(UTC) - _SCRIPT_MAY_WAIT
        for script in scripts:
            left = script.name not in kept and self._api.by_our_clock(script.dt_created) < old
            if script.name == key or left:
                await self._api.delete_script(script.id)

    async def _usable_template(self, machine_type: str) -> Template | None:
        """None: the one that was named, of which nothing more is known."""
        if self._template:
            return None
        template = best_template(await self._api.templates(), machine_type)
        if template is None:
            raise Fault(
                "refused",
                f"Paperspace has no Ubuntu template for machines of type {machine_type}. Choose "
                "another offer, or enter a template ID under Providers.",
            )
        return template

    async def _find(self, key: str) -> Instance | None:
        return next((machine for machine in await self.list() if machine.key == key), None)

    def _instance(self, machine: Machine) -> Instance:
        """Billed from its making, which is a little more than Paperspace may count. Times by our clock."""
        made = self._api.by_our_clock(machine.dt_created)
        state, detail = state_of(machine, datetime.now(UTC) - made)
        return Instance(
            machine.id,
            machine.name if machine.ours else "",
            state,
            detail,
            region=machine.region,
            hourly=machine.usage_rate or None,
            billed_from=made,
            billed_to=None if machine.dt_deleted is None else self._api.by_our_clock(machine.dt_deleted),
            page=_PAGE,
        )


def _wanted(launch: Launch) -> tuple[str, Sequence[str]]:
    """The type of machine, and the regions that have it, at least one."""
    machine_type = type_of(launch.gpu, launch.gpus)
    if machine_type is None:
        raise Fault("refused", f"Paperspace has no machine with {launch.gpu}. Choose another offer.")
    regions = regions_of(launch.gpu, launch.region)
    if not regions:
        other_regions = ", ".join(regions_of(launch.gpu, None))
        raise Fault(
            "refused",
            f"Paperspace has {launch.gpu} in {other_regions}, but not in {launch.region}. Choose "
            "another region or another GPU.",
        )
    return machine_type, regions


PROVIDER = HttpProviderSpec(
    name="paperspace",
    title="Paperspace",
    fields=(
        CredentialField(
            "api_key", "API key", hint="Create an API key under Settings, API keys in the Paperspace console."
        ),
        CredentialField(
            "template",
            "Template ID",
            secret=False,
            required=False,
            hint="The template for new machines. If empty, the newest Ubuntu template with "
            "machine learning libraries is used.",
        ),
    ),
    capabilities=CAPABILITIES,
    page="https://console.paperspace.com/settings/apikeys",
    address=ADDRESS,
    explain=explain,
    calls_every=_CALLS_EVERY_SECONDS,
    launches_every=_LAUNCHES_EVERY_SECONDS,
    connect=lambda http, given: Paperspace(PaperspaceApi(http), given.get("template", "")),
)

"""What is used of Paperspace's API. None is published; this is written from the types of its own client."""

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from tests.providers.services.contracts import Calls, ResponseBody, Sent, misfits
from tests.providers.services.web import Exchange


class CamelSent(Sent):
    model_config = ConfigDict(alias_generator=to_camel)


class CamelResponseBody(ResponseBody):
    # Times travel as text.
    model_config = ConfigDict(alias_generator=to_camel, strict=False)


class NewMachine(CamelSent):
    name: str
    machine_type: str
    template_id: str
    disk_size: int
    region: str
    network_id: str | None = None
    startup_script_id: str | None = None
    public_ip_type: Literal["static", "dynamic", "none"] = "none"
    start_on_create: bool = False
    auto_shutdown_enabled: bool = False
    auto_snapshot_enabled: bool = False
    take_initial_snapshot: bool = False
    email_password: bool = False
    enable_nvlink: bool = False


class NewScript(CamelSent):
    name: str
    script: str
    is_run_once: bool = False


class Machine(CamelResponseBody):
    id: str
    name: str
    state: Literal[
        "off", "starting", "stopping", "restarting", "serviceready", "ready", "upgrading", "provisioning"
    ]
    region: str
    usage_rate: float
    storage_rate: float
    dt_created: datetime
    dt_deleted: datetime | None


class Page(CamelResponseBody):
    has_more: bool
    next_page: str | None = None


class Event(CamelResponseBody):
    id: str
    name: str
    state: Literal["new", "in progress", "done", "error", "cancelled"]


class PastEvent(Event):
    error: str | None
    machine_id: str | None


class Events(Page):
    items: list[PastEvent]


class Changed(CamelResponseBody):
    data: Machine
    event: Event


class Machines(Page):
    items: list[Machine]


class Script(CamelResponseBody):
    id: str
    name: str
    is_run_once: bool
    is_enabled: bool
    assigned_machine_ids: list[str]
    dt_created: datetime


class Scripts(Page):
    items: list[Script]


class Template(CamelResponseBody):
    class Fits(CamelResponseBody):
        is_available: bool
        machine_type_label: str

    id: str
    name: str
    agent_type: str
    operating_system_label: str
    default_size_gb: int | None
    available_machine_types: list[Fits]


class Templates(Page):
    items: list[Template]


class Session(CamelResponseBody):
    class Team(CamelResponseBody):
        namespace: str

    class User(CamelResponseBody):
        email: str

    team: Team
    user: User


class Error(CamelResponseBody):
    code: str
    message: str


_CALLS: Calls = [
    (r"GET /auth/session", None, Session | None),
    (r"GET /machines", None, Machines),
    (r"GET /machines/[^/]+", None, Machine),
    (r"POST /machines", NewMachine, Changed),
    (r"DELETE /machines/[^/]+", None, Changed),
    (r"GET /machine-events", None, Events),
    (r"GET /startup-scripts", None, Scripts),
    (r"POST /startup-scripts", NewScript, Script),
    (r"DELETE /startup-scripts/[^/]+", None, Script),
    (r"GET /os-templates", None, Templates),
]


def paperspace_misfits(exchange: Exchange) -> Iterator[str]:
    return misfits(_CALLS, Error, exchange)

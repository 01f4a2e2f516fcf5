"""The JSON of administration."""

from datetime import datetime
from uuid import UUID

from pydantic import Field, JsonValue

from gpubloom.server.accounts.schemas import Role, UserOut
from gpubloom.server.schema import Flag, Schema


class PersonOut(UserOut):
    disabled: bool
    last_seen_at: datetime | None


class People(Schema):
    items: list[PersonOut]


class PersonChange(Schema):
    role: Role | None = None
    disabled: Flag | None = None


class ActorOut(Schema):
    id: UUID
    name: str
    email: str


class AuditEventOut(Schema):
    """An entry. `sequence` is its number in the chain."""

    id: UUID
    sequence: int | None
    at: datetime
    actor: ActorOut | None
    action: str
    subject: str
    project_id: UUID | None
    ip_address: str | None
    details: dict[str, JsonValue]


class AuditEvents(Schema):
    items: list[AuditEventOut]
    total: int


class ServerOut(Schema):
    """Information about this server for signed-in users. Only admins see folders."""

    version: str
    signup: str
    uploads_folder: str | None
    data_roots: list[str]
    architectures: list[str] = Field(
        description="Architectures of installed plug-ins: the values of `model.architecture` in a config."
    )


class ServerWarnings(Schema):
    """What the operator of this server should change, in sentences."""

    items: list[str]

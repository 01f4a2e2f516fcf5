"""The JSON of alert channels."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, Field, SecretStr
from pydantic_core import PydanticCustomError

from gpubloom.server.alerts.tables import ChannelKind
from gpubloom.server.schema import Flag, Line, Schema, StorableSecret
from gpubloom.traincard.alert_rules import DEFAULT_RULES, RULES


def _known_rule(rule: str) -> str:
    if rule not in RULES:
        raise PydanticCustomError(
            "unknown_alert_rule", "This rule does not exist. Choose one of the rules that the list names."
        )
    return rule


Rule = Annotated[Line, Field(max_length=64), AfterValidator(_known_rule)]
Rules = Annotated[list[Rule], Field(min_length=1, max_length=100)]
ChannelName = Annotated[Line, Field(min_length=1, max_length=80)]
Address = Annotated[SecretStr, Field(min_length=1, max_length=2_000), StorableSecret]


class ChannelIn(Schema):
    """A new channel. `email` goes to the address of your account and needs no address."""

    kind: ChannelKind
    name: ChannelName
    address: Address | None = Field(None, description="The https address of a webhook. Not for email.")
    rules: Rules = Field(list(DEFAULT_RULES), description="What the channel is told.")
    project_id: UUID | None = Field(None, description="Only runs of this project. If empty: all your runs.")


class ChannelChange(Schema):
    """The fields of a channel to change. Fields that are left out keep their values."""

    name: ChannelName | None = None
    address: Address | None = None
    rules: Rules | None = None
    enabled: Flag | None = None


class ChannelOut(Schema):
    """A channel. Its address and its signing secret are never shown again."""

    id: UUID
    project_id: UUID | None
    kind: ChannelKind
    name: str
    host: str = Field(description="The host of the webhook, or the email address.")
    rules: list[str]
    enabled: bool
    created_at: datetime
    last_sent_at: datetime | None
    problem: str | None = Field(description="Why the newest message did not arrive. Empty: it did.")


class NewChannel(ChannelOut):
    """A channel that was just created."""

    signing_secret: str | None = Field(
        description="Only of a webhook, and only now: the key of the HMAC-SHA256 in X-Bloom-Signature."
    )


class AlertRule(Schema):
    """A rule that a channel, or a run's config, can name."""

    name: str
    title: str
    default: bool = Field(description="Whether a new channel has it.")


class Channels(Schema):
    items: list[ChannelOut]
    rules: list[AlertRule] = Field(description="Every rule that there is.")


class TrialResult(Schema):
    """Whether a test message arrived."""

    delivered: bool
    problem: str | None

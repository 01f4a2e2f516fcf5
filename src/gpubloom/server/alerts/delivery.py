"""Send what was noted: emails, signed webhooks, messages for chats. Retried with growing pauses.

A message is claimed in one transaction, sent outside of any, and its outcome stored in another. A server that
is killed in between leaves a claim that runs out: the message is sent again, with the same id in
X-Bloom-Delivery, rather than never. Connections go through the egress policy, redirects are not followed, and
nothing of an answer but its status is ever shown: a webhook is no window into the operator's network.
"""

import asyncio
import hashlib
import hmac
import json
import smtplib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import anyio.to_thread
import httpx2
import structlog
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from gpubloom.egress import EgressRefused, Policy
from gpubloom.egress.clients import async_client
from gpubloom.server.accounts.mail import Email, Mailer
from gpubloom.server.accounts.tables import User
from gpubloom.server.alerts.raising import Raiser
from gpubloom.server.alerts.service import UNREADABLE, Target, check_target, open_target
from gpubloom.server.alerts.tables import AlertChannel, AlertDelivery
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.projects.tables import Project
from gpubloom.server.security.secrets import CannotOpen, Vault
from gpubloom.server.settings import Settings

log = structlog.get_logger("bloom")

LOOK_SECONDS = 2.0
# After each try that failed; then the message is given up.
PAUSES = tuple(timedelta(seconds=seconds) for seconds in (10, 60, 600, 3_600, 21_600))
_CLAIM = timedelta(minutes=2)
_TIMEOUT_SECONDS = 10.0
_AT_ONCE = 20
_TOO_MANY = 429
_REQUEST_TIMEOUT = 408


@dataclass(frozen=True)
class Message:
    """All that a channel is told. `id` is the same in every try."""

    id: UUID
    rule: str
    level: str
    title: str
    text: str
    run: str
    project: str
    link: str

    @property
    def words(self) -> str:
        """For a chat."""
        parts = [f"{self.run}: {self.title}", self.text, self.link]
        return "\n".join(part for part in parts if part)

    def for_programs(self) -> dict[str, Any]:
        return {
            "text": self.words,
            "id": str(self.id),
            "rule": self.rule,
            "level": self.level,
            "title": self.title,
            "details": self.text,
            "run": self.run,
            "project": self.project,
            "link": self.link,
        }


class NotDelivered(Exception):
    """Why a message did not arrive; `final`: trying again would not help."""

    def __init__(self, sentence: str, *, final: bool = False) -> None:
        super().__init__(sentence)
        self.final = final


class Sender:
    """Sends one message to one channel."""

    def __init__(self, settings: Settings, mailer: Mailer) -> None:
        self._settings, self._mailer = settings, mailer

    async def send(self, channel: AlertChannel, owner: User, message: Message) -> None:
        """Raises NotDelivered."""
        if channel.kind == "email":
            await self._email(owner, message)
            return
        try:
            vault = await anyio.to_thread.run_sync(Vault.of, self._settings.home)
            target = open_target(vault, channel)
        except CannotOpen:
            raise NotDelivered(UNREADABLE, final=True) from None
        body = message.for_programs() if channel.kind == "webhook" else {"text": message.words}
        await self._post(target, message, json.dumps(body).encode())

    async def _email(self, owner: User, message: Message) -> None:
        hello = f"Hello {owner.name},\n\n"
        where = f"{message.run} (project {message.project})" if message.project else message.run
        text = f"{hello}{where}: {message.title}\n\n{message.text}\n\n{message.link}\n\n" + (
            f"Rule: {message.rule}. Change your alerts: {self._settings.address}/settings?tab=alerts\n"
        )
        subject = " ".join(f"{message.run}: {message.title}".split())[:200]
        try:
            await self._mailer.try_send(Email(owner.email, subject, text))
        except (OSError, smtplib.SMTPException) as problem:
            raise NotDelivered(f"The mail server did not take it ({type(problem).__name__}).") from problem

    async def _post(self, target: Target, message: Message, body: bytes) -> None:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "gpubloom",
            "X-Bloom-Delivery": str(message.id),
        }
        if target.secret is not None:
            stamp = str(int(now().timestamp()))
            signed = hmac.new(target.secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256)
            headers |= {"X-Bloom-Timestamp": stamp, "X-Bloom-Signature": f"sha256={signed.hexdigest()}"}
        policy = Policy.of_operator()
        try:
            # Checked again: what the operator allows may have changed since it was stored.
            check_target(policy, target.address)
            async with (
                asyncio.timeout(_TIMEOUT_SECONDS),
                async_client(policy, timeout=_TIMEOUT_SECONDS) as http,
                http.stream("POST", target.address, content=body, headers=headers) as answer,
            ):
                status = answer.status_code
        except EgressRefused as refused:
            raise NotDelivered(str(refused), final=True) from None
        except (httpx2.InvalidURL, UnicodeError):
            raise NotDelivered("The address of the webhook is not valid.", final=True) from None
        except (httpx2.HTTPError, OSError) as problem:
            raise NotDelivered(f"The webhook did not answer ({type(problem).__name__}).") from problem
        if not 200 <= status < 300:
            wrong = status < 500 and status not in {_TOO_MANY, _REQUEST_TIMEOUT}
            raise NotDelivered(f"The webhook answered {status}.", final=wrong)


def trial(channel: AlertChannel, settings: Settings) -> Message:
    """The message of the test button."""
    return Message(
        uuid4(),
        "alert",
        "info",
        "This is a test",
        f"Alerts of your runs arrive in the channel {channel.name}.",
        "GPU Bloom",
        "",
        f"{settings.address}/settings?tab=alerts",
    )


async def deliver_due(database: Database, settings: Settings, sender: Sender) -> int:
    """Try every message that is due once; returns how many."""
    claimed = await _claim(database, settings)
    await asyncio.gather(*(_try(database, sender, each) for each in claimed))
    return len(claimed)


@dataclass(frozen=True)
class _Claimed:
    delivery_id: UUID
    channel: AlertChannel
    owner: User
    message: Message


async def _claim(database: Database, settings: Settings) -> list[_Claimed]:
    moment = now()
    due = AlertDelivery.next_try_at <= moment
    async with database.read() as session:
        # A read first: an idle server takes no write lock.
        if not await session.scalar(select(AlertDelivery.id).where(due).limit(1)):
            return []
    claimed = []
    async with database.write() as session:
        rows = await session.scalars(
            select(AlertDelivery)
            .where(due)
            .order_by(AlertDelivery.next_try_at)
            .limit(_AT_ONCE)
            .with_for_update(skip_locked=True)
        )
        for delivery in rows.all():
            channel = await session.get_one(AlertChannel, delivery.channel_id)
            if not channel.enabled:
                delivery.next_try_at, delivery.problem = None, "The channel is turned off."
                continue
            owner = await session.get_one(User, channel.user_id)
            if owner.disabled:
                delivery.next_try_at, delivery.problem = None, "The account of the owner is disabled."
                continue
            job = await session.get_one(TrainingJob, delivery.job_id)
            project = await session.get_one(Project, job.project_id)
            delivery.next_try_at = moment + _CLAIM
            delivery.tries += 1
            message = Message(
                delivery.id,
                delivery.rule,
                delivery.level,
                delivery.title,
                delivery.text,
                job.name,
                project.name,
                f"{settings.address}/projects/{project.id}/jobs/{job.id}",
            )
            claimed.append(_Claimed(delivery.id, channel, owner, message))
    return claimed


async def _try(database: Database, sender: Sender, claimed: _Claimed) -> None:
    channel = claimed.channel
    problem: NotDelivered | None = None
    try:
        await sender.send(channel, claimed.owner, claimed.message)
    except NotDelivered as failed:
        problem = failed
    except Exception as unexpected:
        # Counted like any other, so that it is not tried for ever.
        log.error("sending an alert failed", channel=str(channel.id), exc_info=unexpected)
        problem = NotDelivered(f"The message could not be sent ({type(unexpected).__name__}).")
    async with database.write() as session:
        stored = await session.get(AlertDelivery, claimed.delivery_id)
        told = await session.get(AlertChannel, channel.id)
        if stored is None or told is None:
            return
        moment = now()
        if problem is None:
            stored.next_try_at, stored.sent_at, stored.problem = None, moment, None
            told.last_sent_at, told.problem = moment, None
            return
        stored.problem = told.problem = str(problem)
        is_over = problem.final or stored.tries > len(PAUSES)
        stored.next_try_at = None if is_over else moment + PAUSES[stored.tries - 1]
        if is_over:
            log.warning("gave up an alert", channel=str(channel.id), kind=channel.kind, reason=str(problem))


async def keep_alerting(database: Database, settings: Settings, mailer: Mailer) -> None:
    """Runs until cancelled: looks at jobs that have changed and sends what is due."""
    raiser, sender = Raiser(database), Sender(settings, mailer)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            await raiser.look()
            await deliver_due(database, settings, sender)
        except (SQLAlchemyError, OSError) as problem:
            log.warning("waiting for the database before sending alerts", reason=type(problem).__name__)
        except Exception as problem:
            # One job that cannot be read must not silence the alerts of all others for good.
            log.error("looking for alerts failed", exc_info=problem)

"""Sends letters: through SMTP when a server is configured, otherwise into an outbox folder and the log.

Letters are sent after the transaction that caused them, never inside it. One that cannot be sent is kept in
the outbox, so nothing is lost when the mail server is away.
"""

import smtplib
import ssl
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import anyio.to_thread
import structlog

from gpubloom.server.clock import now
from gpubloom.server.security.secrets import new_secret
from gpubloom.server.settings import Settings

log = structlog.get_logger("bloom")

SMTP_TIMEOUT_SECONDS = 20


@dataclass(frozen=True)
class Letter:
    """What one person is told; `link` is the address the letter is about, if any."""

    to: str
    subject: str
    text: str
    link: str | None = None


class Mailer:
    """Sends letters the way the settings say."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._outbox = settings.home / "outbox"

    @property
    def kind(self) -> Literal["smtp", "outbox"]:
        return "outbox" if self._settings.smtp_url is None else "smtp"

    async def send(self, letter: Letter) -> None:
        """Send one letter; a failure is logged and the letter kept, never raised into a request."""
        message = self._compose(letter)
        if self._settings.smtp_url is not None:
            try:
                await anyio.to_thread.run_sync(
                    _send_smtp, self._settings.smtp_url.get_secret_value(), message
                )
            except (OSError, smtplib.SMTPException) as error:
                path = await anyio.to_thread.run_sync(self._keep, message)
                log.error("mail could not be sent", to=letter.to, kept_as=str(path), reason=str(error))
            else:
                log.info("mail sent", to=letter.to, subject=letter.subject)
            return
        path = await anyio.to_thread.run_sync(self._keep, message)
        log.info(
            "no mail server is configured (BLOOM_SMTP_URL): mail kept",
            to=letter.to,
            subject=letter.subject,
            link=letter.link,
            kept_as=str(path),
        )

    def _compose(self, letter: Letter) -> EmailMessage:
        message = EmailMessage()
        message["From"] = self._settings.mail_from
        message["To"] = letter.to
        message["Subject"] = letter.subject
        message["Date"] = format_datetime(now())
        message["Message-ID"] = make_msgid(domain="gpubloom.invalid")
        message.set_content(letter.text)
        return message

    def _keep(self, message: EmailMessage) -> Path:
        self._outbox.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._outbox / f"{_stamp(now())}-{new_secret()[:8]}.eml"
        # Under its name only when it is whole: people and tools watch this folder.
        part = path.with_suffix(".part")
        # Letters hold links that sign people in: nobody else on this machine may read them.
        part.touch(mode=0o600)
        part.write_bytes(bytes(message))
        return part.replace(path)


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y%m%dT%H%M%S%f")


def _send_smtp(address: str, message: EmailMessage) -> None:
    """`smtps://` is TLS; `smtp://` upgrades when it can, and must before a password is sent."""
    parts = urlsplit(address)
    host = parts.hostname or "localhost"
    context = ssl.create_default_context()
    client: smtplib.SMTP
    if parts.scheme == "smtps":
        client = smtplib.SMTP_SSL(host, parts.port or 465, timeout=SMTP_TIMEOUT_SECONDS, context=context)
    else:
        client = smtplib.SMTP(host, parts.port or 587, timeout=SMTP_TIMEOUT_SECONDS)
    with client:
        if parts.scheme != "smtps":
            client.ehlo()
            if client.has_extn("starttls"):
                client.starttls(context=context)
            elif parts.username:
                raise smtplib.SMTPException(
                    "the mail server offers no TLS, so the password was not sent to it"
                )
        if parts.username:
            client.login(unquote(parts.username), unquote(parts.password or ""))
        client.send_message(message)

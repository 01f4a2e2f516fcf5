"""Emails: their words, and sending them, through SMTP when a server is configured, otherwise into an outbox
folder and the log.

An email is sent after the transaction that caused it, never inside it. One that cannot be sent is kept in the
outbox, so nothing is lost when the mail server is unavailable. Links carry their secret in the fragment,
which browsers never send.
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
class Email:
    """What one person is told; `link` is the address the email is about, if any."""

    to: str
    subject: str
    text: str
    link: str | None = None


class Mailer:
    """Sends emails the way the settings say."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._outbox = settings.home / "outbox"

    @property
    def kind(self) -> Literal["smtp", "outbox"]:
        return "outbox" if self._settings.smtp_url is None else "smtp"

    async def try_send(self, mail: Email) -> None:
        """Send one email, or raise OSError or SMTPException: for a caller that tries again."""
        if self._settings.smtp_url is None:
            await self.send(mail)
            return
        address = self._settings.smtp_url.get_secret_value()
        await anyio.to_thread.run_sync(_send_smtp, address, self._compose(mail))
        log.info("email sent", to=mail.to, subject=mail.subject)

    async def send(self, mail: Email) -> None:
        """Send one email; a failure is logged and the email kept, never raised into a request."""
        message = self._compose(mail)
        if self._settings.smtp_url is not None:
            try:
                await anyio.to_thread.run_sync(
                    _send_smtp, self._settings.smtp_url.get_secret_value(), message
                )
            except (OSError, smtplib.SMTPException) as error:
                path = await anyio.to_thread.run_sync(self._keep, message)
                log.error("could not send email", to=mail.to, kept_as=str(path), reason=str(error))
            else:
                log.info("email sent", to=mail.to, subject=mail.subject)
            return
        path = await anyio.to_thread.run_sync(self._keep, message)
        log.info(
            "no mail server is configured (BLOOM_SMTP_URL): email kept in the outbox folder",
            to=mail.to,
            subject=mail.subject,
            link=mail.link,
            kept_as=str(path),
        )

    def _compose(self, mail: Email) -> EmailMessage:
        message = EmailMessage()
        message["From"] = self._settings.mail_from
        message["To"] = mail.to
        message["Subject"] = mail.subject
        message["Date"] = format_datetime(now())
        message["Message-ID"] = make_msgid(domain="gpubloom.invalid")
        message.set_content(mail.text)
        return message

    def _keep(self, message: EmailMessage) -> Path:
        self._outbox.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._outbox / f"{_stamp(now())}-{new_secret()[:8]}.eml"
        # Under its name only when it is whole: people and tools watch this folder.
        part = path.with_suffix(".part")
        # Emails hold links that sign people in: nobody else on this machine may read them.
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
                    "the mail server does not offer TLS, so the password was not sent"
                )
        if parts.username:
            client.login(unquote(parts.username), unquote(parts.password or ""))
        client.send_message(message)


def page_link(address: str, page: str, parameter: str, secret: str) -> str:
    """A link to a page of the web app with a secret for it."""
    return f"{address}{page}#{parameter}={secret}"


def verification(address: str, to: str, secret: str) -> Email:
    """Without the name: a stranger who signs up with this address must not choose words of the email."""
    link = page_link(address, "/auth/verify", "token", secret)
    return Email(
        to=to,
        subject="Confirm your email address for GPU Bloom",
        text="Hello,\n\nOpen this link within 24 hours and enter the password that you chose. This confirms "
        f"your email address and signs you in:\n\n{link}\n\n"
        "If you did not sign up, ignore this email. Without the confirmation, nobody can use the account.\n",
        link=link,
    )


def already_registered(address: str, to: str) -> Email:
    return Email(
        to=to,
        subject="You already have a GPU Bloom account",
        text="Hello,\n\nSomeone tried to sign up with this email address. "
        "If it was you: you already have an account.\n\n"
        f"Sign in: {address}/auth\n"
        f"Reset your password: {address}/auth/forgot\n\n"
        "If it was not you, ignore this email. Your account was not changed.\n",
    )


def signed_up_again(address: str, to: str, secret: str) -> Email:
    link = page_link(address, "/auth/reset", "token", secret)
    return Email(
        to=to,
        subject="Choose a password for GPU Bloom",
        text="Hello,\n\nSomeone signed up more than once with this email address, so the passwords of these "
        "sign-ups do not count. If it was you, open this link within one hour to choose your password:\n\n"
        f"{link}\n\nIf you did not sign up, ignore this email and the others. Nobody can use the account.\n",
        link=link,
    )


def password_reset(address: str, to: str, secret: str) -> Email:
    link = page_link(address, "/auth/reset", "token", secret)
    return Email(
        to=to,
        subject="Reset your GPU Bloom password",
        text=f"Hello,\n\nOpen this link within one hour to set a new password:\n\n{link}\n\n"
        "If you did not request a new password, ignore this email. Your password stays the same.\n",
        link=link,
    )


def password_changed(address: str, to: str, name: str, *, tokens_revoked: bool) -> Email:
    revoked = " Your API tokens were revoked." if tokens_revoked else ""
    return Email(
        to=to,
        subject="Your GPU Bloom password was changed",
        text=f"Hello {name},\n\n"
        f"Your password was changed, and your other devices were signed out.{revoked}\n\n"
        f"If you did not change it, reset your password now: {address}/auth/forgot\n",
    )


def invitation(address: str, to: str, inviter: str, secret: str) -> Email:
    link = page_link(address, "/auth", "invite", secret)
    return Email(
        to=to,
        subject=f"{inviter} invites you to GPU Bloom",
        text=f"Hello,\n\n{inviter} invites you to use GPU Bloom, a server for training language models. "
        f"Open this link within 7 days to create your account:\n\n{link}\n",
        link=link,
    )


def factors_changed(address: str, to: str, name: str, event: str) -> Email:
    return Email(
        to=to,
        subject="The sign-in of your GPU Bloom account was changed",
        text=f"Hello {name},\n\n{event}\n\n"
        f"If it was not you, reset your password now: {address}/auth/forgot\n"
        f"Then sign in and check your second factors: {address}/settings\n",
    )


def machines_still_billed(to: str, name: str, provider: str, reason: str, machines: list[str]) -> Email:
    """`machines`: each with its id at the provider, its rate and the page where its owner terminates it."""
    listed = "\n".join(f"  {machine}" for machine in machines)
    return Email(
        to=to,
        subject=f"Terminate a machine at {provider} that GPU Bloom cannot terminate",
        text=f"Hello {name},\n\n"
        f"GPU Bloom could not terminate these machines, so {provider} may still bill them:\n\n{listed}\n\n"
        f"Reason: {reason}\n\n"
        f"Terminate them in the console of {provider}. If the API key was changed, enter the new key under "
        "Providers; GPU Bloom then terminates them within five minutes. It keeps trying and writes again "
        "every day.\n",
    )

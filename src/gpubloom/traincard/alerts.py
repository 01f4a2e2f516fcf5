"""Alerts of a run: messages to a person's webhook when it fails, diverges, stalls or ends, or says so itself.

Rules look at the events that rank 0 has written, so an alert is never about something that was lost. A thread
sends; the loop and the writer never wait for a network. A rule sends once per attempt (a stall once until
the loop moves again), and a process sends a limited number of messages. The message is what Slack,
Mattermost and Discord's Slack address take (`text`), with fields for programs; with a secret it is signed.

    BLOOM_ALERT_WEBHOOK   the address, https
    BLOOM_ALERT_ON        rules, default "failed,diverged,stalled,alert"; also "ended"
    BLOOM_ALERT_SECRET    signs the message: X-Bloom-Signature is the HMAC-SHA256 of "<timestamp>.<body>"
    BLOOM_STOP_ON         rules that also stop a loop that takes commands, such as "diverged"

A config may name rules, too (`alert_rules.ConfigRules`). In a job of the server nothing is stopped from here:
the server applies the rules of the config and records why.
"""

import hashlib
import hmac
import json
import logging
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import urlsplit

from gpubloom.errors import InputError
from gpubloom.traincard.alert_rules import (
    DEFAULT_RULES,
    EVENT_RULES,
    STALL_SECONDS,
    Alert,
    ConfigRules,
    alerts_in,
    check_rules,
)
from gpubloom.traincard.ranks import LOOP_SIGNS
from gpubloom.traincard.redaction import redact

logger = logging.getLogger("gpubloom.traincard")

_MOST_MESSAGES = 50
_TRIES = (0.0, 2.0, 8.0)
_TIMEOUT_SECONDS = 10.0
_TEXT_CHARACTERS = 2_000
_FAILED = frozenset({"failed", "killed", "preempted"})
_LOCAL = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True)
class AlertSettings:
    """Where alerts of this process go, and which rules hold."""

    webhook: str
    on: frozenset[str]
    stop_on: frozenset[str] = frozenset()
    secret: str | None = None

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str], config: ConfigRules | None = None
    ) -> "AlertSettings | None":
        """None when nothing is set; InputError says what is wrong with a setting."""
        config = config or ConfigRules()
        webhook = environment.get("BLOOM_ALERT_WEBHOOK", "").strip()
        stop_on = _rules("BLOOM_STOP_ON", environment.get("BLOOM_STOP_ON", "")) | config.stop_on
        if not webhook and not stop_on:
            return None
        parts = urlsplit(webhook)
        if webhook and not (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOCAL)):
            raise InputError("invalid_address", "BLOOM_ALERT_WEBHOOK must be an https:// address.")
        on = (
            config.on
            or _rules("BLOOM_ALERT_ON", environment.get("BLOOM_ALERT_ON", ""))
            or frozenset(DEFAULT_RULES)
        )
        return cls(webhook, on, stop_on, environment.get("BLOOM_ALERT_SECRET") or None)


def _rules(name: str, text: str) -> frozenset[str]:
    # A process does not diagnose itself: it knows its own events only.
    return check_rules(name, (part.strip() for part in text.split(",") if part.strip()), EVENT_RULES)


class Alerts:
    """Looks at written events and sends what the rules find."""

    def __init__(self, settings: AlertSettings, run: str, stop: Callable[[str], None]) -> None:
        self._settings = settings
        self._run = run
        self._stop = stop
        self._said: set[tuple[str, str]] = set()
        self._queue: SimpleQueue[Alert | None] = SimpleQueue()
        self._sent = 0
        self._moved_at: float | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._deliver, name="traincard-alerts", daemon=True)
        self._thread.start()

    def change(self, settings: AlertSettings) -> None:
        """Rules that became known later, such as those of a config."""
        self._settings = settings

    def see(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Called by the writer with what is on file now."""
        for record in records:
            kind = record["kind"]
            if kind in LOOP_SIGNS:
                self._moved_at = time.monotonic()
                self._said.discard(("stalled", ""))
            for alert in alerts_in(kind, record.get("step"), record):
                self._say(alert, key=f"{alert.title}\0{alert.text}" if alert.rule == "alert" else "")
            if kind == "end":
                self._ended(str(record.get("status")), str(record.get("message") or ""))

    def finish(self, seconds: float) -> None:
        """Sends what is left, for a limited time."""
        self._queue.put(None)
        self._thread.join(seconds)

    def _ended(self, status: str, message: str) -> None:
        self._is_over = True
        if status in _FAILED and message != "SIGTERM":
            self._say(
                Alert(
                    "failed",
                    f"The run {'failed' if status == 'failed' else f'was {status}'}",
                    message,
                    "error",
                )
            )
        else:
            self._say(Alert("ended", f"The run has ended: {status}", message, "info"))

    def _say(self, alert: Alert, key: str = "") -> None:
        if (alert.rule, key) in self._said:
            return
        self._said.add((alert.rule, key))
        if alert.rule in self._settings.stop_on and not self._is_over:
            self._stop(
                f"{alert.title}: the rule {alert.rule} stops the run (BLOOM_STOP_ON or alerts.stop_on in its "
                f"config). {alert.text}".strip()
            )
        if self._settings.webhook and alert.rule in self._settings.on:
            self._queue.put(alert)

    def _deliver(self) -> None:
        while True:
            try:
                alert = self._queue.get(timeout=5.0)
            except Empty:
                self._look_for_stall()
                continue
            if alert is None:
                return
            if self._sent >= _MOST_MESSAGES:
                continue
            self._sent += 1
            if problem := send(self._settings, alert, self._run):
                logger.warning("TrainCard could not send an alert: %s", problem)

    def _look_for_stall(self) -> None:
        if self._moved_at is not None and not self._is_over:
            quiet = time.monotonic() - self._moved_at
            if quiet > STALL_SECONDS:
                self._say(
                    Alert("stalled", "The run has stalled", f"No progress for {quiet / 60:.0f} minutes.")
                )


def send(settings: AlertSettings, alert: Alert, run: str, tries: Sequence[float] | None = None) -> str | None:
    """Send one message, with retries; returns why it could not be sent. The address is never part of that."""
    body = json.dumps(_message(alert, run)).encode()
    problem = None
    for pause in _TRIES if tries is None else tries:
        time.sleep(pause)
        try:
            with _opener.open(_request(settings, body), timeout=_TIMEOUT_SECONDS):
                return None
        except urllib.error.HTTPError as error:
            problem = f"the webhook answered {error.code}"
            # What was wrong stays wrong, except for a busy or broken server.
            if error.code < 500 and error.code != 429:
                return problem
        except (OSError, ValueError) as error:
            problem = str(getattr(error, "reason", None) or type(error).__name__)
    return problem


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """A webhook that points elsewhere is not followed: the message was meant for one address."""


_opener = urllib.request.build_opener(_NoRedirects)


def _message(alert: Alert, run: str) -> dict[str, Any]:
    title, text = redact(alert.title)[:_TEXT_CHARACTERS], redact(alert.text)[:_TEXT_CHARACTERS]
    return {
        "text": f"{run}: {title}" + (f"\n{text}" if text else ""),
        "rule": alert.rule,
        "level": alert.level,
        "title": title,
        "details": text,
        "run": run,
    }


def _request(settings: AlertSettings, body: bytes) -> urllib.request.Request:
    headers = {"Content-Type": "application/json", "User-Agent": "gpubloom-traincard"}
    if settings.secret is not None:
        stamp = str(int(time.time()))
        digest = hmac.new(settings.secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
        headers |= {"X-Bloom-Timestamp": stamp, "X-Bloom-Signature": f"sha256={digest}"}
    return urllib.request.Request(settings.webhook, data=body, headers=headers, method="POST")  # noqa: S310 - checked

"""What a job's row gives reason to tell. Pure: the row in, the alerts out.

Everything is derived from what is stored, never from the moment at which it was stored: a server that is
killed in between finds the same alerts when it looks again, and the key of each says whether it was told.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from gpubloom.server.jobs.states import ENDED
from gpubloom.server.jobs.summary import StoredSummary, read_summary
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.traincard.alert_rules import STALL_SECONDS, Alert, ConfigRules
from gpubloom.traincard.causes import CAUSES

_LONGEST_TEXT = 2_000
_LEVELS = {"critical": "error", "warning": "warning", "info": "info"}


@dataclass(frozen=True)
class Raised:
    """An alert, every rule by which it may be told, and when it happened by the server's clock."""

    alert: Alert
    rules: frozenset[str]
    key: str
    at: datetime


def rules_of(job: TrainingJob) -> ConfigRules:
    """The rules in the run's config: a TrainConfig, one that was sent, or one that its script recorded."""
    if job.kind == "train":
        return ConfigRules.of(job.config)
    recorded = read_summary(job.summary).alert_rules
    own = ConfigRules.of({"alerts": {"on": recorded.on, "stop_on": recorded.stop_on}})
    sent = ConfigRules.of(job.config.get("config"))
    return ConfigRules(own.on or sent.on, own.stop_on | sent.stop_on)


def alerts_of(job: TrainingJob, at: datetime) -> Iterator[Raised]:
    """Everything that could be told about the job as it is now."""
    summary = read_summary(job.summary)
    yield from _said_by_run(job, summary)
    if job.status in ENDED:
        yield _ended(job, summary)
        return
    for finding in summary.findings:
        # Somebody who asked for a stall wants to know of the lost rank that it follows from.
        explains = finding.evidence.get("explains")
        rules = {finding.kind, *(map(str, explains) if isinstance(explains, list) else ())}
        if "diverging" in rules:
            rules.add("diverged")
        alert = Alert(
            "diverged" if finding.kind == "diverging" else finding.kind,
            finding.title,
            f"{finding.sentence} {finding.next_step}".strip()[:_LONGEST_TEXT],
            _LEVELS.get(finding.severity, "info"),
        )
        yield Raised(alert, frozenset(rules), _key(job, alert, summary), at)
    quiet = at - job.updated_at
    if job.kind == "run" and job.status == "running" and quiet > timedelta(seconds=STALL_SECONDS):
        minutes = int(quiet.total_seconds() // 60)
        sentence = f"Nothing was received for {minutes} minutes. The process or its connection may be gone."
        alert = Alert("stalled", "The run has stalled", sentence)
        yield Raised(alert, frozenset({"stalled"}), _key(job, alert, summary), at)


def _said_by_run(job: TrainingJob, summary: StoredSummary) -> Iterator[Raised]:
    for said in summary.alerts:
        alert = Alert(said.rule, said.title, said.text, said.level)
        text = f"{said.title}\0{said.text}" if said.rule == "alert" else ""
        key = f"{job.id}:{said.attempt}:{said.rule}" + (f":{_short(text)}" if text else "")
        yield Raised(alert, frozenset({said.rule}), key, datetime.fromtimestamp(said.at, UTC))


def _ended(job: TrainingJob, summary: StoredSummary) -> Raised:
    moment = job.end_time or job.updated_at
    key = f"{job.id}:{job.attempt}:end"
    if job.status != "failed":
        title = f"The run has ended: {job.status}"
        alert = Alert("ended", title, (job.error_message or "")[:_LONGEST_TEXT], "info")
        return Raised(alert, frozenset({"ended"}), key, moment)
    cause = (summary.error.cause if summary.error is not None else None) or job.error_code or ""
    rules = {"failed", *({cause} & CAUSES.keys())}
    title = f"The run failed: {CAUSES[cause].title}" if cause in CAUSES else "The run failed"
    alert = Alert("failed", title, (job.error_message or "")[:_LONGEST_TEXT], "error")
    return Raised(alert, frozenset(rules), key, moment)


def _key(job: TrainingJob, alert: Alert, summary: StoredSummary) -> str:
    # A stall is told again once the run has moved in between.
    # A run may say any number, and the column holds some characters.
    moved = f":{summary.step}"[:24] if alert.rule == "stalled" else ""
    return f"{job.id}:{job.attempt}:{alert.rule}{moved}"


def _short(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:24]

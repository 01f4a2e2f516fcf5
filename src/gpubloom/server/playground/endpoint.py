"""What lies in a serve job's directory: where its process listens, and when somebody last asked it something.

Nothing is kept in memory: a server that was restarted, or another one, finds the same. The process that
writes there is not trusted: no file is read or touched through a link.
"""

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gpubloom.plan.tasks import SERVE_FILE
from gpubloom.server.problems import NotFound
from gpubloom.traincard.safe_paths import look_beneath, open_beneath, read_json_beneath

_LARGEST_SERVE_FILE = 1 << 20
_USED_FILE = "used"


@dataclass(frozen=True)
class Endpoint:
    """A process that serves a model. It answers on this machine only, and only requests with its token."""

    token: str
    models: tuple[str, ...]
    context_length: int | None
    chat_template: bool | None

    def model_named(self, which: str | None) -> str:
        """The name of `base` or `tuned` there; without a choice, the tuned model where there is one."""
        if which is None:
            return "tuned" if "tuned" in self.models else self.models[0]
        if which not in self.models:
            raise NotFound(
                f"This model has no {which} version. Remove :{which} from the model name.",
                code="model_not_found",
            )
        return which


def read_endpoint(run_dir: Path) -> Endpoint | None:
    """Where to ask; None while the model is being loaded."""
    try:
        content = read_json_beneath(run_dir, SERVE_FILE, most=_LARGEST_SERVE_FILE)
        if content is None:
            return None
        models = tuple(str(name) for name in content["models"])
        if not models:
            return None
        length, template = content.get("context_length"), content.get("chat_template")
        return Endpoint(
            token=str(content["token"]),
            models=models,
            context_length=length if isinstance(length, int) else None,
            chat_template=template if isinstance(template, bool) else None,
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def note_use(run_dir: Path) -> None:
    """Record the time of a request. A directory that is gone is ignored."""
    try:
        file = open_beneath(run_dir, _USED_FILE, os.O_WRONLY | os.O_CREAT)
    except OSError:
        return
    try:
        os.utime(file)
    finally:
        os.close(file)


def last_use(run_dir: Path) -> datetime | None:
    """The time of the last request."""
    try:
        facts = look_beneath(run_dir, _USED_FILE)
        return None if facts is None else datetime.fromtimestamp(facts.st_mtime, UTC)
    except (OSError, ValueError, OverflowError):
        return None

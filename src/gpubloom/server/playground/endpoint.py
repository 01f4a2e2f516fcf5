"""What lies in a serve job's directory: where its process listens, and when somebody last asked it something.

Nothing is kept in memory: a server that was restarted, or another one, finds the same.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

SERVE_FILE = "serve.json"
SOCKET_FILE = "serve.sock"
_USED_FILE = "used"


@dataclass(frozen=True)
class Endpoint:
    """A process that serves a model. It answers on this machine only, and only requests with its token."""

    token: str
    models: tuple[str, ...]
    context_length: int | None
    chat_template: bool | None


def read_endpoint(run_dir: Path) -> Endpoint | None:
    """Where to ask; None while the model is being loaded."""
    try:
        content = json.loads((run_dir / SERVE_FILE).read_text(encoding="utf-8"))
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
    except (OSError, ValueError, KeyError, TypeError):
        return None


def note_use(run_dir: Path) -> None:
    """Record the time of a request. A directory that is gone is ignored."""
    try:
        (run_dir / _USED_FILE).touch()
    except OSError:
        return


def last_use(run_dir: Path) -> datetime | None:
    """The time of the last request."""
    try:
        return datetime.fromtimestamp((run_dir / _USED_FILE).stat().st_mtime, UTC)
    except OSError:
        return None

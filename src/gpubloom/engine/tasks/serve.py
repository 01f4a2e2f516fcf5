"""The task `serve`: holds a model in memory and answers requests until it has been idle for long enough.

serve.json holds the port and the token; only its owner can read it. It exists exactly while requests are
answered.
"""

import json
import secrets
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gpubloom.engine.hardware import choose_compute
from gpubloom.engine.serving.http_server import serving
from gpubloom.engine.serving.model_registry import ModelRegistry, NotEnoughMemory
from gpubloom.engine.serving.prompt_formatter import PromptFormatter
from gpubloom.engine.serving.resolved_model import opened_model
from gpubloom.engine.serving.service import Counts, Service
from gpubloom.engine.tasks.session import Stopped, TaskSession
from gpubloom.errors import InputError
from gpubloom.plan.tasks import SERVE_FILE, SOCKET_FILE, ServeTask
from gpubloom.traincard.atomic_write import replace_file

_POLL_SECONDS = 0.2
_HEARTBEAT_POLLS = 50


def run(task: ServeTask, session: TaskSession) -> dict[str, Any]:
    """Answers requests until idle; raises Stopped when the task is cancelled before."""
    (session.home / SERVE_FILE).unlink(missing_ok=True)
    token = secrets.token_urlsafe(32)
    with ExitStack() as copies:
        service = _load(task, session, copies)
        port = copies.enter_context(serving(service, token, session.home))
        try:
            _write_serve_file(session.home / SERVE_FILE, port, token, service)
            session.reporter.phase("serve")
            _wait(task, session, service)
        finally:
            for name in (SERVE_FILE, SOCKET_FILE):
                (session.home / name).unlink(missing_ok=True)
    counts = service.counts
    return {"requests": counts.requests, "prompt_tokens": counts.prompt_tokens, "tokens": counts.tokens}


def _load(task: ServeTask, session: TaskSession, copies: ExitStack) -> Service:
    """`copies`: sharded checkpoints are read from copies, the other one not before somebody asks for it."""
    base = Path(task.base) if task.base else None
    session.reporter.heartbeat(expect_next_in=600)
    found = copies.enter_context(opened_model(Path(task.model), base, copy=session.home / "weights"))
    formatter = PromptFormatter.of(found)
    try:
        other = None
        if task.other is not None:
            # Its own base is that of its run, which is the same run.
            copy = session.home / "other-weights"
            other = copies.enter_context(opened_model(Path(task.other), base, copy=copy))
        registry = ModelRegistry(found, choose_compute(task.device, "auto"), other)
    except NotEnoughMemory as problem:
        raise InputError(problem.code, str(problem)) from None
    session.reporter.describe({"model": str(found.folder), **registry.facts()})
    for note in (*found.notes, *([formatter.note] if formatter.note else [])):
        session.reporter.log(note, level="warning")

    def report(counts: Counts, tokens_per_second: float) -> None:
        values = {"serve/tokens_per_second": tokens_per_second, "serve/tokens": counts.tokens}
        session.reporter.metrics(values | {"serve/requests": counts.requests}, step=counts.requests)

    return Service(registry, formatter, report)


def _wait(task: ServeTask, session: TaskSession, service: Service) -> None:
    beat = 0
    while service.idle_seconds < task.idle_minutes * 60:
        if session.stop_wanted():
            raise Stopped
        if beat % _HEARTBEAT_POLLS == 0:
            session.reporter.heartbeat()
        beat += 1
        # Waits like sleep, but a signal that is handled in between does not lengthen it.
        threading.Event().wait(_POLL_SECONDS)


def _write_serve_file(file: Path, port: int, token: str, service: Service) -> None:
    content = {
        "v": 1,
        "port": port,
        "token": token,
        "models": list(service.registry.names),
        "context_length": service.registry.context_length,
        "chat_template": service.formatter.template is not None,
    }
    replace_file(file, json.dumps(content) + "\n", mode=0o600)

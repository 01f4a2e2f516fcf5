"""The states of a job, the table of transitions between them, and the kinds of jobs."""

from collections.abc import Mapping
from typing import Any, Literal

from gpubloom.server.problems import Conflict

Status = Literal[
    "queued",
    "provisioning",
    "running",
    "pausing",
    "paused",
    "cancelling",
    "cancelled",
    "completed",
    "failed",
]
Action = Literal[
    "pause", "resume", "cancel", "extend", "reopen", "start", "complete", "fail", "stop", "retry"
]

# States in which a worker follows the job.
ACTIVE: tuple[Status, ...] = ("provisioning", "running", "pausing", "cancelling")
ENDED: tuple[Status, ...] = ("completed", "failed", "cancelled")

# People pause, resume, cancel and extend; the lease holder does the rest.
_MOVES: dict[Action, dict[Status, Status]] = {
    "pause": {"queued": "paused", "provisioning": "pausing", "running": "pausing"},
    "resume": {"paused": "queued", "failed": "queued", "cancelled": "queued"},
    "cancel": {
        "queued": "cancelled",
        "paused": "cancelled",
        "provisioning": "cancelling",
        "running": "cancelling",
        "pausing": "cancelling",
    },
    "extend": {"completed": "queued"},
    # A playground that was left, or was preempted: opened again, it keeps its address.
    "reopen": {"completed": "queued", "failed": "queued", "cancelled": "queued"},
    "start": {
        "provisioning": "running",
        "running": "running",
        "pausing": "pausing",
        "cancelling": "cancelling",
    },
    "complete": dict.fromkeys(ACTIVE, "completed"),
    # A job that waits fails when its files lie on a machine that is gone.
    "fail": {**dict.fromkeys(ACTIVE, "failed"), "queued": "failed"},
    # Transitions that complete a request.
    "stop": {"pausing": "paused", "cancelling": "cancelled"},
    "retry": {"provisioning": "queued", "running": "queued"},
}

_DONE: dict[Action, str] = {
    "pause": "paused",
    "resume": "resumed",
    "cancel": "cancelled",
    "extend": "extended",
    "reopen": "reopened",
    "start": "started",
    "complete": "completed",
    "fail": "failed",
    "stop": "stopped",
    "retry": "retried",
}
Kind = Literal["train", "find_learning_rate", "evaluate", "export", "serve", "script", "run"]
# Kinds with a page of their own; the other kinds are tasks for one of these, or for a model.
TOP_LEVEL_KINDS: tuple[Kind, ...] = ("train", "script", "run")
# Tasks that only read a model. On a machine without GPUs they run beside a training.
MODEL_TASK_KINDS: tuple[Kind, ...] = ("evaluate", "export", "serve")
# How often a task that was interrupted is started again.
MAX_ATTEMPTS: dict[Kind, int] = {"evaluate": 3, "export": 3, "serve": 2}
_NAMES: dict[Kind, str] = {
    "train": "training",
    "find_learning_rate": "learning-rate finder",
    "evaluate": "evaluation",
    "export": "export",
    "serve": "playground",
    "script": "script",
    # Of a Reporter on any machine, which sends it here (`server/runs/receiving.py`). No worker follows it.
    "run": "sent run",
}
# A task has no checkpoints: it can be cancelled and started again, not paused.
_ONLY_OF_TRAININGS: dict[str, str] = {
    "pause": "paused; cancel it instead",
    "extend": "extended",
    "settings": "changed while running",
    "save": "told to save a checkpoint",
}


def can(action: Action, status: Status) -> bool:
    """Whether this action is possible in this state."""
    return status in _MOVES[action]


def after(action: Action, status: Status) -> Status:
    """The next state. Raises Conflict if the action is not possible."""
    try:
        return _MOVES[action][status]
    except KeyError:
        raise Conflict(f"The job is {status}. It cannot be {_DONE[action]}.", code="wrong_state") from None


def name_of(kind: Kind) -> str:
    """The name of a kind of job in sentences."""
    return _NAMES[kind]


def check_action_allowed(
    kind: Kind, what: Action | Literal["settings", "save"], config: Mapping[str, Any]
) -> None:
    """Raises Conflict if this kind of job, or this job, does not support the action."""
    if kind == "run" and what != "cancel":
        raise Conflict(
            "This run was sent from another machine, so this server cannot control it. Stop or resume it "
            "there.",
            code="not_for_this_kind",
        )
    if kind == "train" or what not in _ONLY_OF_TRAININGS:
        return
    if kind == "script" and what == "pause":
        # The script gets a signal, and resumes from what it had saved.
        if config.get("resumes"):
            return
        raise Conflict(
            "This script does not resume from a checkpoint, so it cannot be paused. Cancel it instead.",
            code="cannot_resume",
        )
    article = "An" if _NAMES[kind][0] in "aeiou" else "A"
    raise Conflict(
        f"{article} {_NAMES[kind]} cannot be {_ONLY_OF_TRAININGS[what]}.", code="not_for_this_kind"
    )

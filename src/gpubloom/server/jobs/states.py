"""The states of a job and the one table of moves between them."""

from typing import Literal, get_args

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
Want = Literal["run", "pause", "cancel"]
Action = Literal[
    "pause", "resume", "cancel", "extend", "reopen", "start", "complete", "fail", "stop", "retry"
]

ALL: tuple[Status, ...] = get_args(Status)
# A worker must be following these.
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
    # A playground that was left, or gave way: opened again, it keeps its address.
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
    # The end that was asked for.
    "stop": {"pausing": "paused", "cancelling": "cancelled"},
    "retry": {"provisioning": "queued", "running": "queued"},
}


def can(action: Action, status: Status) -> bool:
    """Whether a job in this state can be moved so."""
    return status in _MOVES[action]


def after(action: Action, status: Status) -> Status:
    """The state that follows; a sentence when there is none."""
    try:
        return _MOVES[action][status]
    except KeyError:
        raise Conflict(f"A job that is {status} cannot be {_DONE[action]}.", code="wrong_state") from None


_DONE: dict[Action, str] = {
    "pause": "paused",
    "resume": "resumed",
    "cancel": "cancelled",
    "extend": "extended",
    "reopen": "opened again",
    "start": "started",
    "complete": "completed",
    "fail": "failed",
    "stop": "stopped",
    "retry": "tried again",
}

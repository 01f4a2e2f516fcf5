"""The kinds of jobs, and what can be asked of each."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from gpubloom.server.jobs.states import Action
from gpubloom.server.problems import Conflict

Kind = Literal["train", "find_learning_rate", "evaluate", "export", "serve", "script"]

ALL: tuple[Kind, ...] = get_args(Kind)
# What people come to see; the others are tasks about one of these, or about a model.
TOP_LEVEL_KINDS: tuple[Kind, ...] = ("train", "script")
# They read a model that is there; on a machine without GPUs they do not stand in a training's way.
MODEL_TASK_KINDS: tuple[Kind, ...] = ("evaluate", "export", "serve")

# How often a task is begun anew when something from outside ended it.
MAX_ATTEMPTS: dict[Kind, int] = {"evaluate": 3, "export": 3, "serve": 2}

_NAMES: dict[Kind, str] = {
    "train": "training",
    "find_learning_rate": "learning-rate finder",
    "evaluate": "evaluation",
    "export": "export",
    "serve": "playground",
    "script": "script",
}

# A task has no checkpoints: it can be stopped and begun anew, not interrupted.
_ONLY_OF_TRAININGS: dict[str, str] = {
    "pause": "paused; cancel it instead",
    "extend": "extended",
    "settings": "changed while it runs",
    "save": "asked to save",
}


def name_of(kind: Kind) -> str:
    """What a person calls it."""
    return _NAMES[kind]


def check_can_be_asked(
    kind: Kind, what: Action | Literal["settings", "save"], config: Mapping[str, Any]
) -> None:
    """Raises a sentence for what makes no sense for this kind of job, or for this one."""
    if kind == "train" or what not in _ONLY_OF_TRAININGS:
        return
    if kind == "script" and what == "pause":
        # It gets a signal; what it saved before is all that it can go on from.
        if config.get("resumes"):
            return
        raise Conflict(
            "Nothing in this script goes on from a checkpoint, so it cannot be paused; cancel it instead.",
            code="cannot_resume",
        )
    article = "An" if _NAMES[kind][0] in "aeiou" else "A"
    raise Conflict(
        f"{article} {_NAMES[kind]} cannot be {_ONLY_OF_TRAININGS[what]}.", code="not_for_this_kind"
    )

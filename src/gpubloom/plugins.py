"""Plug points: what installed packages add to GPU Bloom, found by entry points of three groups.

Nothing is imported before a file, a config or a run asks for it by name. Whatever goes wrong in a plug-in is
said in one sentence that names it and the package it comes from.
"""

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from gpubloom.errors import InputError

Group = Literal["dataset_readers", "architectures", "callbacks"]

_WORDS: dict[Group, str] = {
    "dataset_readers": "dataset reader",
    "architectures": "architecture",
    "callbacks": "callback",
}


class PluginProblem(InputError):
    """A plug-in is missing, cannot be loaded or failed; the text is one sentence."""


class StopTraining(Exception):
    """Raised by a callback that wants the training to end here, as if it had reached its last step."""


def names(group: Group) -> tuple[str, ...]:
    """What installed packages offer."""
    return tuple(sorted(_found(group)))


def load(group: Group, name: str) -> Callable[..., Any]:
    """The plug-in itself; PluginProblem says why there is none."""
    known = _found(group)
    if name not in known:
        there = f"available: {', '.join(sorted(known))}" if known else "no plug-in of this kind is installed"
        raise PluginProblem("plugin_not_found", f"Unknown {_WORDS[group]} {name!r}; {there}.")
    try:
        plugin = known[name].load()
    except Exception as problem:
        raise failed(group, name, "cannot be imported", problem) from problem
    if not callable(plugin):
        raise PluginProblem("plugin_invalid", f"{title(group, name)} is neither a function nor a class.")
    loaded: Callable[..., Any] = plugin
    return loaded


def title(group: Group, name: str) -> str:
    """A plug-in as people are told of it."""
    found = _found(group).get(name)
    package = found.dist.name if found is not None and found.dist is not None else None
    return f"The {_WORDS[group]} {name!r}" + (f" from package {package}" if package else "")


def failed(group: Group, name: str, what: str, problem: BaseException) -> PluginProblem:
    """One sentence for what a plug-in raised."""
    said = str(problem).splitlines()
    words = f"{type(problem).__name__}: {said[0]}" if said else type(problem).__name__
    return PluginProblem("plugin_failed", f"{title(group, name)} {what}: {words.rstrip('.')}.")


@cache
def _found(group: Group) -> dict[str, EntryPoint]:
    # Of two packages that offer one name the first by package name counts, on every machine the same.
    offered = sorted(
        entry_points(group=f"gpubloom.{group}"),
        key=lambda each: each.dist.name if each.dist else "",
        reverse=True,
    )
    return {each.name: each for each in offered}

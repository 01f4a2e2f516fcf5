"""Callbacks of plug-ins: told what happens, between steps, in the first process.

A plug-in is a function `(config) -> object`; whichever of these methods the object has are called:
`on_start(total_steps)`, `on_step(step, metrics)`, `on_evaluate(step, metrics)`, `on_checkpoint(step, path)`,
`on_end(status)`. One that raises is told of once and not called again: watching must not end a training. To
end it is to be asked for: `raise gpubloom.plugins.StopTraining("…")`.
"""

from collections.abc import Sequence
from typing import Any

from gpubloom import plugins
from gpubloom.traincard import Reporter

_EVENTS = ("on_start", "on_step", "on_evaluate", "on_checkpoint", "on_end")


class Callbacks:
    """The callbacks of one run, in the order of its config."""

    def __init__(self, names: Sequence[str], config: dict[str, Any], reporter: Reporter) -> None:
        self._reporter = reporter
        self._watching: dict[str, object] = {}
        self.has_stopped = False
        for name in names:
            make = plugins.load("callbacks", name)
            try:
                self._watching[name] = make(config)
            except Exception as problem:
                raise plugins.failed("callbacks", name, "cannot be made", problem) from problem
            if not any(hasattr(self._watching[name], event) for event in _EVENTS):
                methods = ", ".join(_EVENTS)
                raise plugins.PluginProblem(
                    f"{plugins.title('callbacks', name)} has none of the methods {methods}."
                )

    def tell(self, event: str, *given: Any) -> None:
        """Calls everybody who listens to this."""
        for name, watcher in list(self._watching.items()):
            method = getattr(watcher, event, None)
            if method is None:
                continue
            try:
                method(*given)
            except plugins.StopTraining as wish:
                self.has_stopped = True
                said = f": {wish}" if str(wish) else ""
                self._reporter.log(f"{plugins.title('callbacks', name)} ends the training{said}")
            except Exception as problem:  # noqa: BLE001 - whatever a watcher does, the training goes on
                del self._watching[name]
                sentence = plugins.failed("callbacks", name, f"failed in {event}", problem)
                self._reporter.log(
                    f"{sentence} It is not called again; the training goes on.", level="warning"
                )

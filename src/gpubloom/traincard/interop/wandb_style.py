"""For scripts written for W&B: the same three calls, recorded in a run directory on this machine.

    import gpubloom.traincard as wandb

    wandb.init(project="shakespeare", config={"learning_rate": 1e-3})
    wandb.log({"loss": 1.93})
    wandb.finish()

Differences: nothing is sent anywhere; a step that was logged before is kept, not dropped; images, tables and
the like are not recorded, which is said once.
"""

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gpubloom.traincard.reader import load_latest
from gpubloom.traincard.reporter import Reporter

logger = logging.getLogger("gpubloom.traincard")


class _Settings(MutableMapping[str, Any]):
    """A dictionary whose entries are attributes, too; every change becomes a fact of the run."""

    def __init__(self, reporter: Reporter, prefix: str, first: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_reporter", reporter)
        object.__setattr__(self, "_prefix", prefix)
        object.__setattr__(self, "_values", {})
        self.update(first)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._values[name] = value
        self._reporter.describe({f"{self._prefix}{name}": value})

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        try:
            return object.__getattribute__(self, "_values")[name]
        except KeyError as missing:
            raise AttributeError(name) from missing

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def quietly(self, values: Mapping[str, Any]) -> None:
        """Takes in values that the run records anyway."""
        self._values.update(values)

    def update(self, *given: Any, allow_val_change: bool = True, **named: Any) -> None:
        """As a dictionary's; W&B's `allow_val_change` is accepted, values may always change."""
        super().update(*given, **named)


class Run:
    """What `init` returns. Also a context manager, which ends the run as completed or failed."""

    def __init__(self, reporter: Reporter, project: str | None, name: str, config: Mapping[str, Any]) -> None:
        self.reporter = reporter
        self.project, self.name, self.id = project, name, name
        self.dir = str(reporter.run_dir)
        latest = load_latest(reporter.events_dir) or {}
        self.step: int = latest.get("step") or 0
        self.resumed = self.step > 0
        self._waiting: dict[str, Any] = {}
        self._logged = self.resumed
        self._warned: set[str] = set()
        self.config = _Settings(reporter, "", config)
        self.summary = _Settings(reporter, "summary/", {})
        reporter.describe({"project": project, "name": name} if project else {"name": name})
        if self.resumed:
            reporter.resumed(self.step)

    def log(self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        """Records values. Without a step, each call is one; `commit=False` waits for the next call's step."""
        if step is None and commit is False:
            self._waiting.update(_flat(data))
            return
        if step is not None:
            self.step = step
        elif self._logged:
            self.step += 1
        self._logged = True
        values, self._waiting = {**self._waiting, **_flat(data)}, {}
        numbers = {name: value for name, value in values.items() if _is_number(value)}
        for name in values.keys() - numbers.keys():
            self._warn(name, f"{name!r} is not recorded: it is a {type(values[name]).__name__}, not a number")
        if numbers:
            self.reporter.metrics(numbers, self.step)
            self.summary.quietly(numbers)

    def define_metric(self, name: str, *_: Any, **options: Any) -> None:
        """Accepted and ignored: every series is drawn over its steps."""
        self._warn("define_metric", "define_metric is ignored: the x-axis of every series is the step")

    def watch(self, *_: Any, **__: Any) -> None:
        """Accepted and ignored, with a warning."""
        watch()

    def save(self, *_: Any, **__: Any) -> None:
        """Accepted and ignored, with a warning."""
        save()

    def log_artifact(self, artifact: Any, *_: Any, **__: Any) -> Any:
        """Lists the files of an artifact as checkpoints; nothing is uploaded."""
        paths = artifact.paths if isinstance(artifact, Artifact) else [os.fspath(artifact)]
        for path in paths:
            self.reporter.checkpoint(path, getattr(artifact, "metadata", None), step=self.step)
        return artifact

    def alert(self, title: str, text: str = "", level: Any = "INFO", **_: Any) -> None:
        """Records an alert."""
        words = {"INFO": "info", "WARN": "warning", "WARNING": "warning", "ERROR": "error"}
        self.reporter.alert(
            title, text, level=words.get(str(getattr(level, "value", level)).upper(), "warning")
        )

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        """Ends the run: completed, or failed for an exit code other than 0."""
        if self._waiting:
            self.log({})
        self.reporter.finish("failed" if exit_code else "completed")
        self._leave()

    def _leave(self) -> None:
        global run
        self.reporter.close()
        if run is self:
            run = None

    def _warn(self, about: str, sentence: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            logger.warning("TrainCard: %s", sentence)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if problem is None:
            self.finish()
        else:
            self.reporter.on_exception(problem)
            self._leave()


# The run of this process, as `wandb.run`; None before `init` and after `finish`.
run: Run | None = None


def init(
    project: str | None = None,
    name: str | None = None,
    config: Mapping[str, Any] | None = None,
    dir: str | os.PathLike[str] | None = None,  # noqa: A002 - W&B's name
    resume: bool | str | None = None,
    id: str | None = None,  # noqa: A002 - W&B's name
    mode: str | None = None,
    **ignored: Any,
) -> Run:
    """Start a run in `dir`/`project`/`name`, or in BLOOM_RUN_DIR if that is set.

    `resume`: "allow", "must" or True continue the run with this name; "never" refuses an existing run;
    otherwise a name that is taken gets a number. Raises FileNotFoundError if the run to continue does not
    exist, and FileExistsError if "never" finds a run. `mode="disabled"`, or WANDB_MODE, records nothing.
    """
    global run
    if run is not None:
        run.finish()
    where = _run_dir(project, name or id, dir, resume)
    is_off = (mode or os.environ.get("WANDB_MODE")) == "disabled"
    reporter = Reporter(where, enabled=not is_off)
    run = Run(reporter, project, name or id or where.name, dict(config or {}))
    if config:
        reporter.config(config)
    if ignored:
        run._warn("init", f"init ignores the arguments {', '.join(sorted(ignored))}")
    return run


def _folder_name(text: str) -> str:
    """A project's or run's name as one folder, whatever characters it has."""
    return re.sub(r"[^\w.+=@ -]+", "-", text).lstrip(".") or "run"


def _run_dir(
    project: str | None, name: str | None, folder: str | os.PathLike[str] | None, resume: bool | str | None
) -> Path:
    if folder is None and (given := os.environ.get("BLOOM_RUN_DIR")):
        return Path(given)
    base = Path(folder or "runs", *([_folder_name(project)] if project else []))
    where = base / _folder_name(name or time.strftime("%Y%m%d-%H%M%S"))
    exists = (where / "traincard").exists()
    if resume == "must" and not exists:
        raise FileNotFoundError(f"There is no run to resume in {where}.")
    if resume == "never" and exists:
        raise FileExistsError(f"{where} already contains a run. Choose another name, or set resume='allow'.")
    number = 1
    while exists and resume in {None, False}:
        number += 1
        candidate = where.with_name(f"{where.name}-{number}")
        if not (candidate / "traincard").exists():
            return candidate
    return where


def log(data: Mapping[str, Any], step: int | None = None, commit: bool | None = None) -> None:
    """As `Run.log`, for the run of this process."""
    _current("log").log(data, step, commit)


def finish(exit_code: int | None = None, quiet: bool | None = None) -> None:
    """As `Run.finish`; without a run it does nothing, as W&B's."""
    if run is not None:
        run.finish(exit_code)


def define_metric(name: str, *given: Any, **options: Any) -> None:
    """Accepted and ignored, with a warning."""
    _current("define_metric").define_metric(name)


def login(*_: Any, **__: Any) -> bool:
    """Nothing to sign in to: the run stays on this machine."""
    return True


def watch(*_: Any, **__: Any) -> None:
    """Accepted and ignored, with a warning: gradients are not recorded."""
    _warn_without_run("watch", "watch is ignored: gradients and weights are not recorded")


def unwatch(*_: Any, **__: Any) -> None:
    """Accepted and ignored."""


def save(*_: Any, **__: Any) -> None:
    """Accepted and ignored, with a warning: files stay where they are."""
    _warn_without_run("save", "save is ignored: nothing is uploaded, the files stay where they are")


def log_artifact(artifact: Any, *_: Any, **__: Any) -> Any:
    """As `Run.log_artifact`."""
    return _current("log_artifact").log_artifact(artifact)


def alert(title: str, text: str = "", level: Any = "INFO", **_: Any) -> None:
    """As `Reporter.alert`."""
    _current("alert").alert(title, text, level)


class _NotRecorded:
    """Stands for an image, a table and the like: `log` says once that it is not recorded."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self.given = given

    def add_data(self, *_: Any) -> None:
        """As W&B's tables have it."""

    def add_column(self, *_: Any, **__: Any) -> None:
        """As W&B's tables have it."""


class Image(_NotRecorded):
    """Not recorded."""


class Table(_NotRecorded):
    """Not recorded."""


class Histogram(_NotRecorded):
    """Not recorded."""


class Audio(_NotRecorded):
    """Not recorded."""


class Video(_NotRecorded):
    """Not recorded."""


class Html(_NotRecorded):
    """Not recorded."""


class Artifact(_NotRecorded):
    """Files by name. What is added is listed as a checkpoint when it is logged."""

    def __init__(self, name: str, type: str = "", **named: Any) -> None:  # noqa: A002 - W&B's name
        super().__init__(name, **named)
        self.name, self.type = name, type
        self.metadata: dict[str, Any] = dict(named.get("metadata") or {})
        self.paths: list[str] = []

    def add_file(self, local_path: str | os.PathLike[str], *_: Any, **__: Any) -> None:
        """One file."""
        self.paths.append(os.fspath(local_path))

    def add_dir(self, local_path: str | os.PathLike[str], *_: Any, **__: Any) -> None:
        """A folder."""
        self.paths.append(os.fspath(local_path))

    def add_reference(self, uri: str, *_: Any, **__: Any) -> None:
        """An address."""
        self.paths.append(uri)

    def wait(self, *_: Any, **__: Any) -> Self:
        """Nothing is uploaded, so there is nothing to wait for."""
        return self


def _warn_without_run(about: str, sentence: str) -> None:
    if run is not None:
        run._warn(about, sentence)
    else:
        logger.warning("TrainCard: %s", sentence)


def _current(call: str) -> Run:
    if run is None:
        raise RuntimeError(f"Call init() before {call}().")
    return run


def __getattr__(name: str) -> Any:
    if name in {"config", "summary"}:
        return getattr(_current(name), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or hasattr(value, "item")


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, Mapping):
            found.update(_flat(value, f"{prefix}{name}/"))
        else:
            found[f"{prefix}{name}"] = value
    return found

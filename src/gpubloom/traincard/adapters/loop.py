"""The adapter of a hand-written PyTorch loop, and its checkpoints.

    for batch in reporter.track(loader, optimizer=optimizer, state={"model": model, "optimizer": optimizer}):
        ...

A step ends when the next batch is asked for; then progress and speed are recorded and commands are applied.
Told to pause or cancel, the loop gets no more batches. A checkpoint is complete or absent: it is written
under a temporary name, then renamed.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from gpubloom.errors import InputError
from gpubloom.traincard.adapters import control_handler, loop
from gpubloom.traincard.adapters.control_handler import Setters
from gpubloom.traincard.adapters.session import (
    Session,
    facts_of,
    loader_facts,
    optimizer_config,
    size_of,
)
from gpubloom.traincard.layout import find_rank, find_world_size
from gpubloom.traincard.reporter import Reporter

_STATE = "state.pt"
_POSITION = "position.json"


def write(
    path: Path,
    save: Callable[[Path], object],
    position: Mapping[str, int],
    rank: int,
    wait_for_all: Callable[[], None],
) -> None:
    """Lets `save` fill a folder, on every rank, and gives it its name when the last rank is done."""
    temporary = path.with_name(f".writing-{path.name}")
    if rank == 0:
        shutil.rmtree(temporary, ignore_errors=True)
    wait_for_all()
    temporary.mkdir(parents=True, exist_ok=True)
    save(temporary)
    wait_for_all()
    if rank == 0:
        with (temporary / _POSITION).open("w", encoding="utf-8") as file:
            json.dump(dict(position), file)
            file.flush()
            os.fsync(file.fileno())
        shutil.rmtree(path, ignore_errors=True)
        temporary.rename(path)
    wait_for_all()


def newest(folder: Path) -> tuple[Path, dict[str, int]] | None:
    """The last checkpoint and where in the loop it was saved; None when there is none."""
    found = sorted(folder.glob(f"step-*/{_POSITION}"))
    return (found[-1].parent, json.loads(found[-1].read_text(encoding="utf-8"))) if found else None


def save(state: Mapping[str, Any], folder: Path) -> None:
    """Writes `state_dict()` of each object, once for all ranks."""
    if find_rank(os.environ) != 0:
        return
    content = {name: part.state_dict() for name, part in state.items()}
    with (folder / _STATE).open("wb") as file:
        sys.modules["torch"].save(content, file)
        file.flush()
        os.fsync(file.fileno())


def load(state: Mapping[str, Any], folder: Path) -> None:
    """Puts back what `save` wrote; ValueError when it was another loop's."""
    # weights_only: a checkpoint is data, and loading it must not run code.
    content = sys.modules["torch"].load(folder / _STATE, map_location="cpu", weights_only=True)
    if missing := sorted(state.keys() - content.keys()):
        raise InputError(
            "checkpoint_mismatch",
            f"{folder} has no state for {', '.join(missing)}: another training loop saved this checkpoint",
        )
    for name, part in state.items():
        part.load_state_dict(content[name])


class Track:
    """The batches of a loop. Iterating is one epoch; `step` is the step that the batch at hand belongs to.

    `optimizer` (and `scheduler`): counts steps, tells learning rate and gradient norm, applies settings; else
    every `accumulation`-th batch is a step. `state`: objects with `state_dict()`, saved when asked and before
    a pause; or `save` and `load`: functions that fill and read a folder, called on every rank.
    `settings`: functions for further settings by name; ValueError refuses. `report_every`: in steps.
    """

    def __init__(
        self,
        reporter: Reporter,
        loader: Iterable[Any],
        *,
        epochs: int = 1,
        optimizer: Any = None,
        scheduler: Any = None,
        state: Mapping[str, Any] | None = None,
        save: Callable[[Path], object] | None = None,
        load: Callable[[Path], object] | None = None,
        settings: Setters | None = None,
        accumulation: int = 1,
        report_every: int = 10,
    ) -> None:
        self.reporter, self.loader, self.epochs, self.epoch, self.step = reporter, loader, epochs, 0, 1
        self._optimizer, self._accumulation, self._report_every = optimizer, accumulation, report_every
        self._save, self._load = save, load
        self._state = state or {}
        if state is not None:
            self._save, self._load = partial(loop.save, state), partial(loop.load, state)
        self._session = Session(reporter)
        self._world_size = find_world_size(os.environ)
        self._done = self._batch = self._skip = self._batches_of_step = self._updates = 0
        self._begun = self._norm_is_told = False
        self._settings = {**self._session.setters(optimizer, [scheduler]), **(settings or {})}
        if optimizer is not None:
            optimizer.register_step_pre_hook(self._before_update)

    @property
    def stopped(self) -> str | None:
        """Why no more batches come: paused or cancelled; None while the training runs."""
        return self._session.control_handler.status

    @property
    def _report_is_due(self) -> bool:
        return self.step == 1 or self.step % self._report_every == 0

    def resume(self) -> int:
        """Loads the newest checkpoint of the run; returns the step it was saved at, 0 when there is none."""
        if self._load is not None and (found := loop.newest(self._session.checkpoints)):
            path, position = found
            self._load(path)
            self._done, self.epoch, self._skip = position["step"], position["epoch"], position["batch"]
        return self._done

    def __iter__(self) -> Iterator[Any]:
        if not self._begun:
            self._begun = True
            self._session.begin({**self._facts(), "epochs": self.epochs}, self._done)
            self._record_configs()
            self._session.control_handler.apply_commands(self._settings)
        if self.stopped or self.epoch >= self.epochs:
            return
        self._session.speed.resume()
        for number, batch in enumerate(self.loader):
            # A resumed epoch leaves out what was trained before; the loader's order has to be the same.
            if number < self._skip:
                continue
            samples, tokens = size_of(batch)
            self._session.speed.add(samples * self._world_size, tokens * self._world_size)
            self.step, self._batch = self._done + 1, number + 1
            yield batch
            self._batches_of_step += 1
            if self._updates or (self._optimizer is None and self._batches_of_step == self._accumulation):
                self._after_step()
            if self._session.control_handler.status is not None:
                self._session.end()
                return
        self.epoch, self._batch, self._skip = self.epoch + 1, 0, 0
        if self.epoch == self.epochs:
            self._session.end()

    def _facts(self) -> dict[str, Any]:
        model = next((part for part in self._state.values() if hasattr(part, "named_parameters")), None)
        facts = {} if model is None else facts_of(model)
        return {**facts, **loader_facts(self.loader, self._accumulation, self._world_size)}

    def _record_configs(self) -> None:
        if self.reporter.rank != 0:
            return
        if self._optimizer is not None:
            self.reporter.config(optimizer_config(self._optimizer), "optimizer")
        if (data := getattr(self.loader, "dataset", None)) is not None:
            self.reporter.dataset("train", data)

    def report(self, **values: Any) -> None:
        """Values of this step, such as loss and accuracy; tensors are read later."""
        self._norm_is_told |= "grad_norm" in values
        self._session.report(values, self.step)

    @contextmanager
    def evaluating(self) -> Iterator[dict[str, Any]]:
        """An evaluation: what is put into the dictionary is recorded under `eval/`."""
        self._session.evaluating()
        found: dict[str, Any] = {}
        yield found
        metrics = {name if "/" in name else f"eval/{name}": value for name, value in found.items()}
        self._session.report(metrics, self.step)
        self._session.evaluated(self.step, metrics)

    @contextmanager
    def saving(self) -> Iterator[list[Path]]:
        """While the loop saves by itself: what is put into the list is recorded as a checkpoint."""
        self._session.saving()
        found: list[Path] = []
        yield found
        for path in found:
            self._session.saved(path, self.step if self._updates else self._done)

    def save_checkpoint(self) -> None:
        """Save a checkpoint now, if `state` or `save` was given; otherwise log a warning."""
        if self._save is None:
            self.reporter.log(
                "no checkpoint was saved: track() was given neither `state` nor `save`", level="warning"
            )
            return
        self._session.saving()
        path = self._session.checkpoints / f"step-{self._done:08d}"
        position = {"step": self._done, "epoch": self.epoch, "batch": self._batch}
        loop.write(path, self._save, position, self.reporter.rank, self._session.control_handler.wait_for_all)
        self._session.saved(path, self._done)

    def _before_update(self, *_: object) -> None:
        self._updates += 1
        if self._report_is_due:
            norm = {} if self._norm_is_told else control_handler.gradient_norm(self._optimizer)
            rate = control_handler.learning_rate(self._optimizer)
            self._session.report({"learning_rate": rate, **norm}, self.step)

    def _after_step(self) -> None:
        self._done, self._batches_of_step, self._updates = self.step, 0, 0
        length = len(self.loader) if isinstance(self.loader, Sized) else 0
        trained = self.epoch * length + self._batch
        total = round(self.epochs * length * self._done / trained) if length else None
        epoch = round(trained / length, 3) if length else None
        self._session.step_done(self._done, total, epoch, self.epochs)
        if self._report_is_due:
            self._session.report(self._session.speed.take(), self._done)
        self._session.control_handler.apply_commands(self._settings)
        if self._session.save_is_due(self._done):
            self.save_checkpoint()

"""One training as all adapters see it: steps, evaluations, checkpoints and speed, in the order they happen.

Frameworks differ in when they call; what is then recorded, on which rank, and what must be on file before a
checkpoint counts is the same for all of them and lives here.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gpubloom.traincard.adapters.control_handler import ControlHandler, interval, optimizer_setters
from gpubloom.traincard.checkpoints import training_metadata
from gpubloom.traincard.reader import load_checkpoints
from gpubloom.traincard.reporter import Reporter

# Evaluating or saving a large model is silent for a while; observers are told to wait longer.
_HEARTBEAT_SECONDS = 600.0
_SHORTEST_PROMISE_SECONDS = 60.0


class Speed:
    """Counts what was trained since `take` was last asked. Time spent otherwise is left out with `resume`."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._last = time.perf_counter()
        self._steps = self._samples = self._tokens = 0

    def resume(self) -> None:
        """The time since the last step was spent on something else: an evaluation, a checkpoint."""
        self._last = time.perf_counter()

    def step(self) -> float:
        """A step is done; returns how many seconds it took, waiting for data included."""
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        self._seconds += seconds
        self._steps += 1
        return seconds

    def add(self, samples: int = 0, tokens: int = 0) -> None:
        """Counts what went into the step."""
        self._samples += samples
        self._tokens += tokens

    def set_tokens(self, tokens: int) -> None:
        """Replaces the tokens counted since the last `take`."""
        self._tokens = tokens

    def take(self) -> dict[str, float]:
        """Speeds since the last call, under the names that charts know; what was not counted is absent."""
        seconds, steps = self._seconds, self._steps
        counted = {"samples_per_second": self._samples, "tokens_per_second": self._tokens}
        self._seconds, self._steps, self._samples, self._tokens = 0.0, 0, 0, 0
        if steps == 0 or seconds <= 0:
            return {}
        found = {name: count / seconds for name, count in counted.items() if count}
        return {**found, "step_seconds": seconds / steps}


def size_of(batch: Any) -> tuple[int, int]:
    """Samples and tokens in a batch, from the shape of its first tensor; 0 for what cannot be known.

    Whole numbers in two dimensions are tokens, padding included: no value is looked at, so no device waits.
    """
    tensor = _first_tensor(batch)
    if tensor is None or len(tensor.shape) == 0:
        return 0, 0
    samples = int(tensor.shape[0])
    is_text = len(tensor.shape) == 2 and "int" in str(tensor.dtype)
    return samples, samples * int(tensor.shape[1]) if is_text else 0


def _first_tensor(batch: Any) -> Any:
    if hasattr(batch, "shape") and hasattr(batch, "dtype"):
        return batch
    if isinstance(batch, Mapping):
        if "input_ids" in batch:
            return _first_tensor(batch["input_ids"])
        batch = batch.values()
    elif not isinstance(batch, (list, tuple)):
        return None
    return next((found for part in batch if (found := _first_tensor(part)) is not None), None)


class Session:
    """From the first step of a training to its end. `every`: intervals that were set while it runs."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self.control_handler = ControlHandler(reporter)
        self.speed = Speed()
        self.every: dict[str, int | None] = {}
        self._evaluated: tuple[int, dict[str, Any]] = (-1, {})
        self._saved: list[Path] = []
        self._facts: Mapping[str, Any] = {}
        self._began = time.perf_counter()
        self.checkpoints = Path(reporter.run_dir) / "checkpoints"
        self.is_over = False

    def begin(self, facts: Mapping[str, Any], step: int) -> None:
        """Training begins after `step`; above 0 it continues an earlier one."""
        self._facts, self._began = facts, time.perf_counter()
        self.reporter.describe(facts)
        self._take_over_checkpoints()
        if step:
            self.reporter.resumed(step)
        self.reporter.phase("train")
        self.speed.resume()

    def _take_over_checkpoints(self) -> None:
        """Checkpoints of earlier attempts: the framework deletes them to make room, like its own."""
        if self.reporter.rank != 0 or not self.reporter.is_on:
            return
        self.reporter.flush()
        for entry in load_checkpoints(self.reporter.events_dir)["checkpoints"]:
            if "://" in (path := str(entry.get("path", ""))):
                continue
            # Absolute paths stay as they are. Where the folder is missing, the files are on another machine.
            file = Path(self.reporter.run_dir) / path
            if file.parent.is_dir() and file not in self._saved:
                self._saved.append(file)

    def step_done(
        self, step: int, total: int | None, epoch: float | None, epochs: float | None, samples: int = 0
    ) -> None:
        """A step of the optimizer is done."""
        seconds = self.speed.step()
        self.speed.add(samples)
        self.reporter.progress(step, total, epoch, epochs)
        self.reporter.heartbeat(max(_SHORTEST_PROMISE_SECONDS, 10 * seconds))

    def report(self, values: Mapping[str, Any], step: int) -> None:
        """Record the values of a step. Rank 0 reports for the run; other ranks record only the step time."""
        if self.reporter.rank == 0:
            self.reporter.metrics(values, step)
        elif "step_seconds" in values:
            self.reporter.metric("step_seconds", values["step_seconds"], step)

    def setters(self, optimizer: Any, schedulers: Iterable[Any]) -> dict[str, Callable[[Any], None]]:
        """What control.json may set in every framework; None for the optimizer: one that nobody showed us."""
        saving = {"save_every_steps": lambda value: self.every.update(save=interval(value))}
        return saving if optimizer is None else {**saving, **optimizer_setters(optimizer, schedulers)}

    def is_due(self, what: str, step: int) -> bool:
        """Whether an interval that was set while the training runs falls on this step."""
        every = self.every.get(what)
        return every is not None and step % every == 0

    def evaluating(self) -> None:
        self.reporter.phase("eval")
        self.reporter.heartbeat(_HEARTBEAT_SECONDS)

    def evaluated(self, step: int, metrics: Mapping[str, Any]) -> None:
        """An evaluation is over; a checkpoint of the same step will carry its metrics."""
        before = self._evaluated[1] if self._evaluated[0] == step else {}
        self._evaluated = step, {**before, **metrics}
        self._go_on()

    def saving(self) -> None:
        """A checkpoint is about to be written; what earlier steps said must last, they are not repeated."""
        self.reporter.flush()
        self.reporter.phase("save")
        self.reporter.heartbeat(_HEARTBEAT_SECONDS)

    def save_is_due(self, step: int) -> bool:
        """Whether to save after this step: asked for, needed before a pause, or by an interval."""
        return self.control_handler.take_save() | self.is_due("save", step)

    def saved(self, path: Path, step: int, best: bool | None = None) -> None:
        """A checkpoint is written. Those that the framework deletes to make room are noticed soon after."""
        if self.reporter.rank == 0:
            metrics = self._evaluated[1] if self._evaluated[0] == step else None
            self.reporter.checkpoint(path, self._metadata(), step=step, metrics=metrics, best=best or None)
            self._saved.append(path)
        self._go_on()

    def _metadata(self) -> dict[str, Any]:
        """Of this attempt: what the framework saved before is its own."""
        if "parameters" not in self._facts:
            return {}
        return training_metadata(
            seconds=time.perf_counter() - self._began,
            parameters=self._facts["parameters"],
            trained_parameters=self._facts["trainable_parameters"],
            precision=self._facts.get("precision"),
        )

    def end(self) -> None:
        """Training is over: completed, or whatever the run was told."""
        self.is_over = True
        self._go_on()
        self.reporter.finish(self.control_handler.status or "completed")

    def _go_on(self) -> None:
        for gone in [path for path in self._saved if not path.exists()]:
            self._saved.remove(gone)
            self.reporter.checkpoint_removed(gone)
        self.reporter.phase("idle" if self.is_over else "train")
        self.speed.resume()


def loader_facts(loader: Any, accumulation: int, world_size: int) -> dict[str, Any]:
    """The rows that one step trains on, where the loader says how many are in a batch."""
    # Accelerate's loaders know it of all ranks together.
    together = getattr(loader, "total_batch_size", None)
    batch = getattr(loader, "batch_size", None)
    rows = together if isinstance(together, int) else batch * world_size if isinstance(batch, int) else None
    return {} if rows is None else {"global_batch_size": rows * accumulation}


def optimizer_config(optimizer: Any) -> dict[str, Any]:
    """An optimizer's class and the settings that it was made with."""
    return {"optimizer": type(optimizer).__name__, **getattr(optimizer, "defaults", {})}


def numbers(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """What of a framework's log can be drawn: plain numbers and tensors of one number."""
    given = (values or {}).items()
    return {name: value for name, value in given if isinstance(value, int | float) or hasattr(value, "item")}


def facts_of(model: Any) -> dict[str, Any]:
    """What is known of a torch model without computing anything: name, size, adapters."""
    config = getattr(model, "config", None)
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    facts: dict[str, Any] = {
        "model": getattr(config, "_name_or_path", None) or type(model).__name__,
        "parameters": sum(size for size, _ in sizes),
        "trainable_parameters": sum(size for size, trained in sizes if trained),
    }
    for name, adapter in (getattr(model, "peft_config", None) or {}).items():
        kind = str(getattr(adapter, "peft_type", "")).rpartition(".")[2]
        rank = getattr(adapter, "r", None)
        facts[f"adapter/{name}"] = kind if rank is None else f"{kind}, rank {rank}"
    return facts

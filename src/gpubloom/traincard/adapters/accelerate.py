"""Accelerate: a tracker for `accelerator.log`, and the loop's batches with commands applied.

    tracker = TrainCardTracker()
    accelerator = Accelerator(log_with=tracker)
    accelerator.init_trackers("project", config)
    batches = tracker.track(accelerator, loader, epochs=3)
    for epoch in range(3):
        for batch in batches:
            ...
            accelerator.log({"train_loss": loss}, step=tracker.step)
    accelerator.end_training()

`track` applies commands between two steps on all ranks at once, and saves with `accelerator.save_state`; what
the loop saves with it is listed as well. A loop that only logs is recorded, too, but nothing can control it.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from accelerate.tracking import GeneralTracker  # type: ignore[import-untyped]

from gpubloom.traincard.adapters.loop import Track
from gpubloom.traincard.adapters.session import facts_of, numbers
from gpubloom.traincard.reporter import Reporter


class TrainCardTracker(GeneralTracker):  # type: ignore[misc]
    """Reports what an Accelerate loop logs. Without a Reporter it makes one when the trackers are started."""

    name = "traincard"
    requires_logging_directory = False
    # Every rank has a stream of its own; which values belong there is decided below.
    main_process_only = False

    def __init__(self, reporter: Reporter | None = None, *, run_dir: str | Path | None = None) -> None:
        super().__init__()
        self._reporter = reporter
        self._run_dir = run_dir
        self._track: Track | None = None
        self._logged_step = 0

    @property
    def tracker(self) -> Reporter:
        """The Reporter, under Accelerate's name for it."""
        if self._reporter is None:
            self._reporter = Reporter(self._run_dir)
        return self._reporter

    @property
    def step(self) -> int:
        """The step of the current batch."""
        return self._logged_step if self._track is None else self._track.step

    def start(self) -> None:
        """Called by `init_trackers`."""
        self.tracker.phase("load")

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Called by `init_trackers` with the run's configuration."""
        self.tracker.describe(values)
        if self.tracker.rank == 0:
            self.tracker.config(values)

    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        """Called by `accelerator.log`. Without a step, the values belong to the current batch."""
        if step is None and self._track is None:
            self._logged_step += 1
        if self.tracker.rank == 0:
            self.tracker.metrics(numbers(values), self.step if step is None else step)

    def track(
        self,
        accelerator: Any,
        loader: Iterable[Any],
        *,
        epochs: int = 1,
        settings: Mapping[str, Callable[[Any], None]] | None = None,
        report_every: int = 10,
    ) -> Track:
        """The batches of a prepared loader; see `Track`. Optimizer and scheduler are the prepared ones."""
        optimizer = next(iter(accelerator._optimizers), None)
        scheduler = next(iter(accelerator._schedulers), None)
        save_state = _listed(accelerator, self)
        for model in accelerator._models:
            self.tracker.describe(facts_of(accelerator.unwrap_model(model)))
        self._track = Track(
            self.tracker,
            loader,
            epochs=epochs,
            # The wrapper is stepped for every batch; the optimizer inside only when gradients are complete.
            optimizer=getattr(optimizer, "optimizer", optimizer),
            scheduler=scheduler,
            save=lambda folder: save_state(str(folder)),
            load=lambda folder: accelerator.load_state(str(folder)),
            settings=settings,
            accumulation=accelerator.gradient_accumulation_steps,
            report_every=report_every,
        )
        return self._track

    def finish(self) -> None:
        """Called by `accelerator.end_training`."""
        if self._track is not None and self._track.stopped is None and self._track.epoch < self._track.epochs:
            self.tracker.log(
                f"The loop trained {self._track.epoch} of {self._track.epochs} epochs: iterating the "
                "batches once is one epoch. Put `for epoch in range(epochs):` around the loop.",
                level="warning",
            )
        if self._track is None or self._track.stopped is None:
            self.tracker.finish("completed")
        self.tracker.close()


def _listed(accelerator: Any, tracker: TrainCardTracker) -> Callable[..., Any]:
    """Lets checkpoints that the loop saves be listed; returns the Accelerator's own `save_state`."""
    original: Callable[..., Any] = getattr(accelerator.save_state, "_original", accelerator.save_state)

    def save_state(*given: Any, **named: Any) -> Any:
        assert tracker._track is not None
        with tracker._track.saving() as saved:
            folder = original(*given, **named)
            saved.append(Path(folder))
        return folder

    save_state._original = original  # type: ignore[attr-defined]
    accelerator.save_state = save_state
    return original

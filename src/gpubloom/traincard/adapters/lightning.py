"""Lightning: one callback.

    trainer = Trainer(..., callbacks=[LightningTrainCardCallback()])

It joins the Trainer's loggers and records what Lightning logs, when it logs it. Lightning counts steps from
0, a run from 1: Lightning's step 9 is the tenth update of the weights and is recorded as 10. A module that
logs no loss has what `training_step` returned recorded instead. Commands are taken up after an update.
"""

from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback, LearningRateMonitor
from lightning.pytorch.loggers.logger import Logger

from gpubloom.errors import InputError
from gpubloom.traincard.adapters import control_handler
from gpubloom.traincard.adapters.control_handler import Setters, interval, not_negative
from gpubloom.traincard.adapters.session import (
    Session,
    facts_of,
    loader_facts,
    numbers,
    optimizer_config,
    size_of,
)
from gpubloom.traincard.names import series_name
from gpubloom.traincard.reporter import Reporter

# What a person gives to a Trainer, and decides about what is learned.
_SETTINGS = (
    "max_epochs", "max_steps", "min_epochs", "min_steps", "precision", "num_devices", "num_nodes",
    "accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm", "log_every_n_steps",
    "val_check_interval", "check_val_every_n_epoch", "limit_train_batches", "limit_val_batches",
    "overfit_batches",
)  # fmt: skip


class LightningTrainCardCallback(Callback):
    """Reports a Lightning run and applies its control.json. Creates a Reporter if none is given."""

    def __init__(self, reporter: Reporter | None = None, *, run_dir: str | Path | None = None) -> None:
        self._reporter, self._run_dir = reporter, run_dir
        self._is_ours = reporter is None
        self._session: Session = None  # type: ignore[assignment]  # Lightning calls on_fit_start first
        self._step = 0

    @property
    def reporter(self) -> Reporter:
        """The Reporter; created on first use."""
        if self._reporter is None:
            self._reporter = Reporter(self._run_dir)
        return self._reporter

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self._session = Session(self.reporter)
        # Not earlier: the place of Lightning's own checkpoints depends on the first logger at set-up.
        trainer.loggers = [*trainer.loggers, _Log(self._session, trainer)]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._step = trainer.global_step
        facts = {"precision": trainer.precision, "accumulate_grad_batches": trainer.accumulate_grad_batches}
        batches = loader_facts(trainer.train_dataloader, trainer.accumulate_grad_batches, trainer.world_size)
        self._session.begin(
            {**facts_of(pl_module), **dict(pl_module.hparams), **facts, **batches}, self._step
        )
        if self.reporter.rank == 0:
            self._record_configs(trainer, pl_module)
        self._session.control_handler.apply_commands(self._setters(trainer))

    def _record_configs(self, trainer: Any, pl_module: Any) -> None:
        settings = {name: getattr(trainer, name) for name in _SETTINGS}
        kinds = {name: type(getattr(trainer, name)).__name__ for name in ("accelerator", "strategy")}
        self.reporter.config({**settings, **kinds}, "Trainer")
        for number, optimizer in enumerate(trainer.optimizers):
            self.reporter.config(
                optimizer_config(optimizer), f"optimizer {number}" if number else "optimizer"
            )
        for name, owner in (("hparams", pl_module), ("data", trainer.datamodule)):
            if hparams := getattr(owner, "hparams", None):
                self.reporter.config(dict(hparams), name)
        for name, loaders in (("train", trainer.train_dataloader), ("eval", trainer.val_dataloaders)):
            for number, loader in enumerate(loaders if isinstance(loaders, (list, tuple)) else [loaders]):
                if (data := getattr(loader, "dataset", None)) is not None:
                    self.reporter.dataset(f"{name} {number}" if number else name, data)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        step = trainer.global_step + 1
        if step % trainer.log_every_n_steps == 0 and optimizer is trainer.optimizers[0]:
            rate = {"learning_rate": control_handler.learning_rate(optimizer)}
            self._session.report({**rate, **control_handler.gradient_norm(optimizer)}, step)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        training, step = self._session, trainer.global_step
        samples, tokens = size_of(batch)
        training.speed.add(samples * trainer.world_size, tokens * trainer.world_size)
        if step == self._step:
            return
        self._step = step
        total = trainer.estimated_stepping_batches
        epoch = trainer.current_epoch + (batch_idx + 1) / trainer.num_training_batches
        training.step_done(step, int(total) if total < 1e15 else None, round(epoch, 3), trainer.max_epochs)
        if not any(series_name(_plain(name)) == "train/loss" for name in trainer.callback_metrics):
            training.report(numbers(outputs if isinstance(outputs, dict) else {"loss": outputs}), step)
        if step % trainer.log_every_n_steps == 0:
            training.report(training.speed.take(), step)
        training.control_handler.apply_commands(self._setters(trainer))
        if training.save_is_due(step):
            path = training.checkpoints / f"step-{step:08d}.ckpt"
            trainer.save_checkpoint(path)
            training.saved(path, step)
        if training.control_handler.status is not None:
            # Somebody who says stop now overrides a minimum that was asked for before.
            trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = None
            trainer.should_stop = True

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._session.evaluating()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            found = numbers(trainer.callback_metrics).items()
            metrics = {name: value for name, value in found if series_name(name).startswith("eval/")}
            self._session.evaluated(trainer.global_step, metrics)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        if trainer.is_global_zero:
            self._session.saving()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._session.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.reporter.on_exception(exception)
        self.teardown(trainer, pl_module, "fit")

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        trainer.loggers = [logger for logger in trainer.loggers if not isinstance(logger, _Log)]
        if self._is_ours and stage == "fit" and self._reporter is not None:
            # The next fit, if there is one, is a new attempt of the same run.
            self._reporter.close()
            self._run_dir, self._reporter = self._reporter.run_dir, None

    def _setters(self, trainer: Any) -> Setters:
        def set_evaluation(value: Any) -> None:
            steps = interval(value)
            if not trainer.enable_validation:
                raise InputError("no_evaluation", "the Trainer was started without validation")
            trainer.check_val_every_n_epoch = None
            # Lightning counts batches here; without a number it validates at the end of an epoch.
            trainer.val_check_batch = steps * trainer.accumulate_grad_batches if steps else float("inf")

        schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
        return {
            **self._session.setters(trainer.optimizers[0], schedulers),
            "clip_norm": lambda value: setattr(trainer, "gradient_clip_val", not_negative(value) or None),
            "eval_every_steps": set_evaluation,
        }


class _Log(Logger):
    name, version = "traincard", ""

    def __init__(self, session: Session, trainer: Any) -> None:
        self._session = session
        self._trainer = trainer

    def log_hyperparams(self, params: Any, *args: Any, **named: Any) -> None:
        self._session.reporter.describe(dict(params))

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        left_out = {"epoch", *self._learning_rates()}
        values = {_plain(name): value for name, value in numbers(metrics).items() if name not in left_out}
        self._session.report(values, (step or 0) + 1)

    def _learning_rates(self) -> list[str]:
        """What a LearningRateMonitor calls the rate that is recorded as `learning_rate` already."""
        monitors = [one for one in self._trainer.callbacks if isinstance(one, LearningRateMonitor)]
        return [next(iter(monitor.lrs)) for monitor in monitors if monitor.lrs]

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        path = checkpoint_callback._last_checkpoint_saved
        best = bool(checkpoint_callback.monitor) and path == checkpoint_callback.best_model_path
        self._session.saved(Path(path), checkpoint_callback._last_global_step_saved, best)


def _plain(name: str) -> str:
    # A value that is logged per step and per epoch has two names; the one per step is the series.
    return name.removesuffix("_step")

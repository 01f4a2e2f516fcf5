"""What a Trainer says and is told while it trains: the Hugging Face adapter with the engine's rules."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpubloom.engine.live_settings import LiveSettings
from gpubloom.traincard import Reporter
from gpubloom.traincard.adapters.hugging_face import HFTrainCardCallback
from gpubloom.traincard.adapters.session import numbers

if TYPE_CHECKING:
    from gpubloom.backends.trl import TrlTrainer

# Ends that somebody wants to continue from.
_TO_BE_CONTINUED = {"paused", "preempted"}
_TAKEN = {
    "loss": "train/loss",
    "learning_rate": "learning_rate",
    "grad_norm": "grad_norm",
    "mean_token_accuracy": "train/accuracy",
    "entropy": "train/entropy",
    "aux_loss": "train/aux_loss",
}


class StoppedAtStart(Exception):
    """The run was told to stop before its first step."""


class Watch(HFTrainCardCallback):
    """Reports steps under the engine's names; decides when to evaluate, save and stop."""

    def __init__(self, reporter: Reporter, run: "TrlTrainer", stop: Callable[[], str | None]) -> None:
        super().__init__(reporter)
        self._run = run
        self._stop = stop
        self.settings = LiveSettings.of(run.config)
        self.grad_norm = 0.0

    @property
    def status(self) -> str | None:
        """Paused, cancelled or preempted, once the run has to stop."""
        return self._training.control_handler.status

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        super().on_train_begin(args, state, control, **others)
        self._run.describe()
        self._take_up()
        if self.status is not None:
            raise StoppedAtStart

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> Any:
        training, run, step = self._training, self._run, state.global_step
        run.step = step
        run.tokens_seen += run.sft.counts.tokens
        run.trained_tokens += run.sft.counts.trained
        epochs = run.loader.steps_per_epoch
        training.step_done(step, run.total_steps, round(step / epochs, 3), round(run.total_steps / epochs, 3))
        training.speed.set_tokens(run.sft.counts.tokens)
        training.control_handler.apply_commands(self._setters(args, state, **others))
        self._take_up()
        control.should_log = True
        control.should_evaluate = self._evaluation_is_due(step)
        control.should_save = self._save_is_due(step)
        control.should_training_stop = self.status is not None or step >= run.total_steps
        self._announce(control)
        # The run directory holds what was logged; here it would only make every checkpoint larger.
        state.log_history.clear()
        return control

    def on_epoch_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        pass

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
        values = numbers(logs)
        if "loss" not in values:
            return
        if not math.isfinite(loss := float(values["loss"])):
            raise FloatingPointError(self._run.not_finite("loss", loss))
        self.grad_norm = float(values.get("grad_norm", 0.0))
        found = {_TAKEN[name]: value for name, value in values.items() if name in _TAKEN}
        # TRL counts tokens, too, but begins again at a resume.
        found |= {"tokens_seen": self._run.tokens_seen, **self._training.speed.take()}
        if self._run.config.data.kind == "examples":
            found["trained_tokens"] = self._run.trained_tokens
        self._training.report(found, state.global_step)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **others: Any) -> None:
        self._training.report(metrics, state.global_step)
        super().on_evaluate(args, state, control, metrics, **others)
        self._run.evaluated = state.global_step, dict(metrics)

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.reporter.phase("train")
        self._training.speed.resume()

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self._hook is not None:
            self._hook.remove()

    def _count_tokens(self, module: Any, inputs: Any, named: Any) -> None:
        """Steps say themselves how many tokens they have, without what only fills a row."""

    def _setters(self, args: Any, state: Any, **others: Any) -> dict[str, Callable[[Any], None]]:
        def setter(name: str) -> Callable[[Any], None]:
            def change(value: Any) -> None:
                self.settings, refused = self.settings.changed({name: value})
                if refused:
                    raise ValueError(refused[name])
                self._apply(name, args)

            return change

        return {name: setter(name) for name in self.settings.__dataclass_fields__}

    def _apply(self, name: str, args: Any) -> None:
        match name:
            case "learning_rate":
                self._run.sft.set_learning_rate(self.settings.learning_rate)
            case "weight_decay":
                self._run.sft.set_weight_decay(self.settings.weight_decay)
            case "clip_norm":
                args.max_grad_norm = self.settings.clip_norm

    def _take_up(self) -> None:
        """A signal counts as a command."""
        if (status := self._stop()) is not None:
            self._training.control_handler.status = status

    def _evaluation_is_due(self, step: int) -> bool:
        every = self.settings.eval_every_steps
        return self._run.dataset.eval is not None and (
            self._ends_epoch(step)
            or step == self._run.total_steps
            or (every is not None and step % every == 0)
        )

    def _save_is_due(self, step: int) -> bool:
        by_epoch, by_step = self._run.config.checkpoint.every_epochs, self.settings.save_every_steps
        epoch = step // self._run.loader.steps_per_epoch
        return (
            self._training.control_handler.take_save()
            or self.status in _TO_BE_CONTINUED
            or step == self._run.total_steps
            or (by_step is not None and step % by_step == 0)
            or (by_epoch > 0 and self._ends_epoch(step) and epoch % by_epoch == 0)
        )

    def _ends_epoch(self, step: int) -> bool:
        return step % self._run.loader.steps_per_epoch == 0

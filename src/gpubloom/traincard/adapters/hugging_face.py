"""Hugging Face: one callback for Trainer, every TRL trainer, and PEFT models.

    trainer = Trainer(..., callbacks=[HFTrainCardCallback()])

It records what the Trainer logs, when it logs it, under the Trainer's own step numbers. Commands are taken up
at the end of a step. A Trainer does not tell its callbacks about exceptions: one that nobody catches is
recorded by the Reporter as always; where somebody does (a notebook), train inside `with callback.reporter:`.
"""

import sys
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from gpubloom.errors import InputError
from gpubloom.traincard.adapters.control_handler import Setters, interval, not_negative
from gpubloom.traincard.adapters.session import Session, facts_of, numbers, size_of
from gpubloom.traincard.reporter import Reporter

# With `include_num_input_tokens_seen` every log has these: elapsed time, and the mean speed since the start.
_MEASURED_BETTER = ("train_runtime", "train_tokens_per_second")
_FACTS = ("per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate", "weight_decay")


class HFTrainCardCallback(TrainerCallback):
    """Reports a Trainer's run and applies its control.json. Creates a Reporter if none is given."""

    def __init__(self, reporter: Reporter | None = None, *, run_dir: str | Path | None = None) -> None:
        self._reporter = reporter
        self._is_ours = reporter is None
        self._run_dir = run_dir
        self._session: Session | None = None
        self._hook: Any = None
        self._tokens_logged = 0
        self._world_size = 1

    @property
    def reporter(self) -> Reporter:
        """The Reporter; created on first use."""
        if self._reporter is None:
            self._reporter = Reporter(self._run_dir)
        return self._reporter

    @property
    def _training(self) -> Session:
        # An evaluation before or after training has no session yet, and is recorded all the same.
        if self._session is None:
            self._session = Session(self.reporter)
        return self._session

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self._is_ours and self._hook is not None:
            # The same Trainer trains again: a new attempt of the same run.
            run_dir = self.reporter.run_dir
            self.reporter.close()
            self._reporter = Reporter(run_dir)
        self._session, self._tokens_logged = Session(self.reporter), 0
        self._world_size = args.world_size
        facts = {name: getattr(args, name) for name in _FACTS}
        facts |= {"precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32"}
        facts |= {
            "global_batch_size": _samples(args),
            "optimizer": str(getattr(args.optim, "value", args.optim)),
            "seed": args.seed,
        }
        self._session.begin({**facts_of(others["model"]), **facts}, state.global_step)
        self._record_configs(args, others)
        self.reporter.progress(state.global_step, state.max_steps, state.epoch, state.num_train_epochs)
        self._hook = others["model"].register_forward_pre_hook(self._count_tokens, with_kwargs=True)
        self._session.control_handler.apply_commands(self._setters(args, state, **others))

    def _record_configs(self, args: Any, others: dict[str, Any]) -> None:
        if self.reporter.rank != 0:
            return
        self.reporter.config(args.to_dict(), type(args).__name__)
        config: Any = getattr(others["model"], "config", None)
        if hasattr(config, "to_dict"):
            self.reporter.config(config.to_dict(), "model")
        for name in ("train", "eval"):
            if (data := getattr(others.get(f"{name}_dataloader"), "dataset", None)) is not None:
                self.reporter.dataset(name, data)

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> Any:
        training, step = self._training, state.global_step
        training.step_done(step, state.max_steps, state.epoch, state.num_train_epochs, _samples(args))
        training.control_handler.apply_commands(self._setters(args, state, **others))
        control.should_evaluate |= training.is_due("eval", step)
        control.should_save |= training.save_is_due(step)
        control.should_training_stop |= training.control_handler.status is not None
        self._announce(control)
        return control

    def on_epoch_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._announce(control)

    def _announce(self, control: Any) -> None:
        if control.should_evaluate:
            self._training.evaluating()
        elif control.should_save:
            self._training.saving()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
        values = numbers(logs)
        values.pop("epoch", None)
        if _are_totals(values):
            self.reporter.describe(values)
            return
        if "loss" in values:
            for name in _MEASURED_BETTER:
                values.pop(name, None)
            if "num_tokens" in values:
                # TRL counts tokens itself, without padding: the better number.
                counted = int(values["num_tokens"])
                self._training.speed.set_tokens(counted - self._tokens_logged)
                self._tokens_logged = counted
            values |= self._training.speed.take()
        else:
            # The log of an evaluation repeats the count of the step.
            values.pop("num_input_tokens_seen", None)
        self._training.report(values, state.global_step)
        if control.should_save:
            self.reporter.flush()

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **others: Any) -> None:
        self._training.evaluated(state.global_step, numbers(metrics))
        if control.should_save:
            self._training.saving()

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        path = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        self._training.saved(path, state.global_step, best=Path(state.best_model_checkpoint or "") == path)

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self._hook is not None:
            self._hook.remove()
        self._training.end()

    def _count_tokens(self, module: Any, inputs: Any, named: Any) -> None:
        if module.training:
            self._training.speed.add(tokens=size_of(named or inputs)[1] * self._world_size)

    def _setters(self, args: Any, state: Any, **others: Any) -> Setters:
        every = self._training.every

        def set_interval(what: str, value: Any) -> None:
            steps = interval(value)
            if getattr(args, f"{what}_strategy") == "steps":
                # The Trainer's own interval; it knows no "never".
                setattr(state, f"{what}_steps", steps or sys.maxsize)
            else:
                every[what] = steps

        def set_evaluation(value: Any) -> None:
            if others.get("eval_dataloader") is None and args.eval_strategy == "no":
                raise InputError(
                    "no_evaluation", "the Trainer was started without evaluation (eval_strategy='no')"
                )
            set_interval("eval", value)

        return {
            **self._training.setters(others["optimizer"], [others["lr_scheduler"]]),
            "clip_norm": lambda value: setattr(args, "max_grad_norm", not_negative(value)),
            "eval_every_steps": set_evaluation,
            "save_every_steps": lambda value: set_interval("save", value),
        }


def _are_totals(values: dict[str, Any]) -> bool:
    """Whether these are what the Trainer logs once at the end: `train_loss` is the mean of the run.

    Callbacks share one dict, and PrinterCallback takes `total_flos` out of it for those that come after.
    """
    return "total_flos" in values or ("train_loss" in values and "loss" not in values)


def _samples(args: Any) -> int:
    return int(args.train_batch_size * args.gradient_accumulation_steps * args.world_size)

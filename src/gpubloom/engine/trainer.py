"""The training loop: readable top to bottom.

A step, then commands, then evaluation, then a checkpoint: everything that happens between two steps happens
in that order, so a resumed run meets the same sequence. The trainer decides when; the executor runs a step,
the CheckpointManager keeps checkpoints, and the Reporter tells observers.

Evaluation and samples change nothing and draw no random number. A callback plug-in is a function
`(config) -> object`; of its object these methods are called, between steps, in the first process, if it has
them:
`on_start(total_steps)`, `on_step(step, metrics)`, `on_evaluate(step, metrics)`, `on_checkpoint(step, path)`,
`on_end(status)`. A callback that raises is reported once and not called again: watching must not end a
training. To end it, a callback raises `gpubloom.plugins.StopTraining("…")`.
"""

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from gpubloom import plugins
from gpubloom.engine.checkpoint import Progress, restore_random_state
from gpubloom.engine.checkpoint.manager import SAVE_HEARTBEAT_SECONDS, CheckpointManager
from gpubloom.engine.data import Batch, Dataset, Loader, Rows
from gpubloom.engine.data.loader import eval_batches
from gpubloom.engine.device_placement import move_to_devices
from gpubloom.engine.evaluation.paired import BatchLosses, PairedChange, batches_for_pairs
from gpubloom.engine.executors import Executor
from gpubloom.engine.executors.step import DeviceNumber, StepMeasures
from gpubloom.engine.live_settings import LiveSettings
from gpubloom.engine.loss import NotFinite
from gpubloom.engine.model import Model
from gpubloom.engine.model_folder import ModelFolder
from gpubloom.engine.optimizer.schedule import Schedule
from gpubloom.engine.parallel import ALONE, Group
from gpubloom.errors import InputError
from gpubloom.plan import TrainConfig, few_steps
from gpubloom.traincard import Reporter
from gpubloom.traincard.checkpoints import training_metadata

if TYPE_CHECKING:
    from gpubloom.engine.samples import SamplePrompts

_EVENTS = ("on_start", "on_step", "on_evaluate", "on_checkpoint", "on_end")

# A schedule needs some steps to warm up and to calm down.


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
                raise plugins.failed("callbacks", name, "cannot be created", problem) from problem
            if not any(hasattr(self._watching[name], event) for event in _EVENTS):
                methods = ", ".join(_EVENTS)
                raise plugins.PluginProblem(
                    "plugin_invalid", f"{plugins.title('callbacks', name)} has none of the methods {methods}."
                )

    def tell(self, event: str, *given: Any) -> None:
        """Calls everybody who listens to this."""
        for name, watcher in list(self._watching.items()):
            method = getattr(watcher, event, None)
            if method is None:
                continue
            try:
                method(*given)
            except plugins.StopTraining as request:
                self.has_stopped = True
                said = f": {request}" if str(request) else ""
                self._reporter.log(f"{plugins.title('callbacks', name)} stops the training{said}")
            except Exception as problem:  # noqa: BLE001 - whatever a watcher does, the training goes on
                del self._watching[name]
                sentence = plugins.failed("callbacks", name, f"failed in {event}", problem)
                self._reporter.log(
                    f"{sentence} It is not called again; the training continues.", level="warning"
                )


@dataclass(frozen=True)
class Evaluation:
    """Averages over tokens."""

    loss: float
    perplexity: float
    accuracy: float
    batches: BatchLosses

    def metrics(self) -> dict[str, float]:
        return {"eval/loss": self.loss, "eval/perplexity": self.perplexity, "eval/accuracy": self.accuracy}


def evaluate(executor: Executor, rows: Rows, *, batch_size: int, max_batches: int) -> Evaluation:
    """Evaluates the rows of at most max_batches, spread evenly over the data."""
    size, count = batches_for_pairs(len(rows), batch_size, max_batches)
    losses, tokens, correct = [], [], 0
    for batch in eval_batches(rows, batch_size=size, max_batches=count):
        batch_loss, batch_correct = executor.evaluate(batch)
        losses.append(float(batch_loss))
        tokens.append(batch.trained_count)
        correct += int(batch_correct)
    mean = sum(losses) / sum(tokens)
    # exp overflows long before a loss stops being comparable.
    perplexity = math.exp(mean) if mean < 700 else math.inf
    return Evaluation(mean, perplexity, correct / sum(tokens), BatchLosses.of(losses, tokens))


@dataclass(frozen=True)
class _OrderedStep:
    """A step whose work the device has been given, and what is to be said of it once its loss is known."""

    step: int
    loss: DeviceNumber
    grad_norm: torch.Tensor
    learning_rate: float
    # Of this step in all processes and in this one, and of all steps so far.
    tokens: int
    samples: int
    own_tokens: int
    tokens_seen: int
    trained_tokens: int
    before: Callable[[], StepMeasures] | None
    started: float


class Trainer:
    """One run in one process, or one of the processes of a run.

    `stop` is asked between steps: it names the status to end with, or None. Of several processes the first
    is told what to do, reports and saves; the others do as it does.

    On a GPU the loss of a step is read when the next step has been ordered, so that the GPU never waits for
    the loop. Before an evaluation, a save and the end, everything is read that was ordered. Callbacks are
    told of a step before the next one, so with callbacks nothing is read late.
    """

    def __init__(
        self,
        config: TrainConfig,
        model: Model,
        dataset: Dataset,
        reporter: Reporter,
        stop: Callable[[], str | None] = lambda: None,
        group: Group = ALONE,
    ) -> None:
        self.config = config
        self.group = group
        self.model = model
        self.dataset = dataset
        self.reporter = reporter
        if group.leads:
            dataset.report(reporter)
        dataset.must_suit(model.shape.vocab_size)
        self.loader = Loader(
            dataset.train,
            batch_size=config.batch_size,
            accumulation=config.accumulation,
            seed=config.seed,
            rank=group.rank,
            processes=group.size,
        )
        steps = config.epochs * self.loader.steps_per_epoch
        self.total_steps = min(steps, config.max_steps or steps)
        self.run_dir = Path(reporter.run_dir).resolve()
        self.on_devices = move_to_devices(
            self._as_trained(), model, self.total_steps, group, reporter.log, self.run_dir
        )
        self.executor: Executor = self.on_devices.executor
        self.model_folder = ModelFolder(
            model, dataset.tokenizer, config.context_length, config.model.path, dataset.turn_end
        )
        self.schedule = Schedule.create(config.schedule, self.total_steps)
        self.settings = LiveSettings.of(config)
        self.manager = CheckpointManager(
            config, self.run_dir, self.model_folder, self.executor, reporter, group
        )
        # Before anything is written: one that cannot be made ends the run here.
        names = config.callbacks if group.leads else []
        self.callbacks = Callbacks(names, config.model_dump(mode="json"), reporter)
        self.step = 0
        self.tokens_seen = 0
        self.trained_tokens = 0
        self.status = "running"
        self._stop = stop
        self._save_wanted = False
        self._evaluated: tuple[int, Evaluation] | None = None
        self._paired = PairedChange()
        self._grad_norm: torch.Tensor | None = None
        # Training time of the attempts before this one, and when this one's began.
        self._earlier_seconds = 0.0
        self._began = time.perf_counter()
        self._ordered: _OrderedStep | None = None
        self._reported_at = 0.0
        device = self.on_devices.compute.device
        self._gpu = device if device.type == "cuda" else None
        self._reads_late = self._gpu is not None and not names
        self._samples = self._make_samples()
        torch.manual_seed(config.seed)

    def train(self) -> str:
        """Trains to the end, or until told to stop; returns how it ended."""
        self.manager.clean()
        if self.group.leads:
            self._describe()
        self.manager.must_have_room(self._saves_left())
        self._began = time.perf_counter()
        self.callbacks.tell("on_start", self.total_steps)
        self._apply_commands()
        if self.step == 0 and self.status == "running":
            # Of the base model, before anything is learned.
            if self.config.has_learned_weights:
                self.evaluate()
            self.write_samples()
        try:
            while self.status == "running" and self.step < self.total_steps:
                self.train_epoch()
                self.report_ordered()
        except Exception:
            # What is being saved is from before the error, and worth having.
            with contextlib.suppress(OSError, RuntimeError):
                self.manager.finish()
            with contextlib.suppress(RuntimeError):
                self.executor.close()
            raise
        self.manager.finish()
        if self.status == "running":
            self.manager.export(self.run_dir / "model")
            self.status = "completed"
        self.executor.close()
        self.callbacks.tell("on_end", self.status)
        self.reporter.finish(self.status)
        return self.status

    def train_epoch(self) -> None:
        """Trains what is left of the epoch, evaluating and saving where the config says."""
        self.reporter.phase("train")
        for batch in self.loader.rest_of_epoch(self._gpu):
            self.train_step(batch)
            self.manager.finish_if_over()
            self._apply_commands()
            if self._evaluation_is_due():
                self.evaluate()
                self.write_samples()
            if self._save_is_due():
                self.save_checkpoint()
            if self.status != "running" or self.step == self.total_steps:
                break

    def train_step(self, batch: Batch) -> None:
        """One update of the weights."""
        started = time.perf_counter()
        self.step += 1
        learning_rate = self.schedule.learning_rate(self.settings.learning_rate, self.step)
        loss = self._forward_backward(batch)
        if not self._reads_late:
            self._must_be_finite(self.step, loss.read())
        self._grad_norm = self.executor.optimizer_step(learning_rate)
        tokens, trained, samples = self.group.total(batch.token_count, batch.trained_count, batch.samples)
        self.tokens_seen += tokens
        self.trained_tokens += trained
        before, self._ordered = (
            self._ordered,
            _OrderedStep(
                step=self.step,
                loss=loss,
                grad_norm=self._grad_norm,
                learning_rate=learning_rate,
                tokens=tokens,
                samples=samples,
                own_tokens=batch.token_count,
                tokens_seen=self.tokens_seen,
                trained_tokens=self.trained_tokens,
                before=self.executor.last_step(),
                started=started,
            ),
        )
        if before is not None:
            self._report(before)
        if not self._reads_late:
            self.report_ordered()

    def report_ordered(self) -> None:
        """Reads and reports the last step, if that was not done yet; NotFinite if its loss is not finite."""
        if self._ordered is not None:
            ordered, self._ordered = self._ordered, None
            self._report(ordered)

    def _report(self, ordered: _OrderedStep) -> None:
        loss = self._must_be_finite(ordered.step, ordered.loss.read())
        now = time.perf_counter()
        # Steps overlap: one takes from the end of the step before it to its own end.
        seconds = now - max(ordered.started, self._reported_at)
        self._reported_at = now
        if self.group.leads:
            values = {
                "train/loss": loss,
                "learning_rate": ordered.learning_rate,
                "grad_norm": ordered.grad_norm,
                "tokens_per_second": ordered.tokens / seconds,
                "samples_per_second": ordered.samples / seconds,
                "step_seconds": seconds,
                "tokens_seen": ordered.tokens_seen,
                # Of running text every token is trained.
                **({"trained_tokens": ordered.trained_tokens} if self._has_examples else {}),
                **self.on_devices.metrics(ordered.own_tokens / seconds),
            }
            self.reporter.metrics(values, step=ordered.step)
            self.callbacks.tell("on_step", ordered.step, values)
        else:
            # So that a rank that is slower than the others is seen.
            self.reporter.metric("step_seconds", seconds, ordered.step)
        # What a step waited for is known when the next one has begun.
        if ordered.before is not None:
            self.reporter.metrics(ordered.before().metrics(seconds), step=ordered.step - 1)
        self.reporter.progress(
            ordered.step,
            self.total_steps,
            epoch=round(ordered.step / self.loader.steps_per_epoch, 6),
            epochs=round(self.total_steps / self.loader.steps_per_epoch, 6),
        )
        # A step may have to wait for the disk while a checkpoint is being saved.
        grace_period = SAVE_HEARTBEAT_SECONDS if self.manager.is_saving else 60.0
        self.reporter.heartbeat(expect_next_in=max(grace_period, 10 * seconds))

    def _must_be_finite(self, step: int, loss: float) -> float:
        if not math.isfinite(loss):
            raise NotFinite(self._not_finite("loss", loss, step))
        return loss

    def _forward_backward(self, batch: Batch) -> DeviceNumber:
        try:
            return DeviceNumber(self.executor.forward_backward(batch))
        except torch.OutOfMemoryError as problem:
            self.report_ordered()
            raise torch.OutOfMemoryError(self._out_of_memory()) from problem

    def evaluate(self) -> Evaluation | None:
        """Loss, perplexity and accuracy on the evaluation split; None when there is none."""
        self.report_ordered()
        if self.dataset.eval is None:
            return None
        self.reporter.phase("eval")
        self.reporter.heartbeat(expect_next_in=SAVE_HEARTBEAT_SECONDS)
        found = evaluate(
            self.executor,
            self.dataset.eval,
            batch_size=self.config.batch_size,
            max_batches=self.config.eval.max_batches,
        )
        self._evaluated = self.step, found
        change = self._paired.add(found.batches)
        if self.group.leads:
            self.reporter.metrics(found.metrics() | change, step=self.step)
            self.callbacks.tell("on_evaluate", self.step, found.metrics())
        self.reporter.phase("train")
        return found

    def write_samples(self) -> None:
        """The answers to the sample prompts at this step."""
        if self._samples is None:
            return
        self.report_ordered()
        self.reporter.phase("eval")
        answers = self._samples.answers(
            self.executor.next_logits,
            lambda: self.reporter.heartbeat(expect_next_in=SAVE_HEARTBEAT_SECONDS),
        )
        for prompt, text in answers:
            if self.group.leads:
                self.reporter.sample(prompt, text, self.step)
        self.reporter.phase("train")

    def _make_samples(self) -> "SamplePrompts | None":
        if not self.config.eval.prompts:
            return None
        # Brings what renders conversations, which most runs do not need here.
        from gpubloom.engine.samples import SamplePrompts

        prompts = SamplePrompts(
            self.config,
            self.dataset.tokenizer,
            self.on_devices.compute.device,
            # All take the same token, or the processes of a sharded model would part.
            agree=self.group.agree if self.executor.form == "sharded" else None,
        )
        if self.group.leads:
            for note in prompts.notes:
                self.reporter.log(note, level="warning")
        return prompts

    def save_checkpoint(self) -> Path:
        """Begins to save all that is needed to continue exactly here; training goes on meanwhile."""
        self.report_ordered()
        self._save_wanted = False
        path = self.manager.path_of(self.step)
        if not self.manager.takes_part or self.manager.holds(self.step):
            return path
        self.manager.finish()
        self._must_be_worth_saving()
        self.manager.start(
            Progress(
                step=self.step,
                updates=self.executor.updates,
                tokens_seen=self.tokens_seen,
                trained_tokens=self.trained_tokens,
                loader=self.loader.state(),
                data_fingerprint=self.dataset.fingerprint(),
                metrics=self._evaluated[1].metrics()
                if self._evaluated and self._evaluated[0] == self.step
                else {},
                loss_scale=self.executor.loss_scale,
                metadata=self._metadata(),
                first_evaluation=self._paired.state(),
            )
        )
        self.callbacks.tell("on_checkpoint", self.step, path)
        return path

    def _metadata(self) -> dict[str, Any]:
        return training_metadata(
            seconds=self._earlier_seconds + time.perf_counter() - self._began,
            parameters=self.model.shape.parameters,
            trained_parameters=self.model.trained_parameters,
            method=self.config.method,
            precision=self.on_devices.compute.precision,
            optimizations=self.on_devices.optimizations(),
        )

    def resume(self) -> None:
        """Continues from the newest checkpoint; without one, the run begins again at step 0."""
        checkpoint = self.manager.read_newest()
        if checkpoint is None:
            self.reporter.log("no checkpoint found: starting from step 0")
            return
        self.reporter.phase("load")
        if checkpoint.progress.data_fingerprint != self.dataset.fingerprint():
            raise InputError(
                "data_changed",
                f"The training data changed after {checkpoint.path} was saved: "
                "restore the old data, or start a new run with the new data.",
            )
        checkpoint.restore(self.executor)
        self.loader.restore(checkpoint.progress.loader)
        restore_random_state(checkpoint.random)
        self.step = checkpoint.progress.step
        self.tokens_seen = checkpoint.progress.tokens_seen
        self.trained_tokens = checkpoint.progress.trained_tokens
        self._paired.restore(checkpoint.progress.first_evaluation)
        self._earlier_seconds = float(checkpoint.progress.metadata.get("training_seconds", 0.0))
        self.reporter.resumed(self.step)

    def _apply_commands(self) -> None:
        """Takes up what control.json wants; a signal counts as a command."""
        status = self._stop()
        if self.group.leads:
            self._look_for_commands(status)
        # All change at the same step, or their weights would part.
        self.settings, self._save_wanted, self.status, self.total_steps = self.group.agree(
            (self.settings, self._save_wanted, self.status, self.total_steps)
        )
        self.executor.tune(weight_decay=self.settings.weight_decay, clip_norm=self.settings.clip_norm)

    def _look_for_commands(self, status: str | None) -> None:
        if (command := self.reporter.control.poll()) is not None:
            self.settings, refused = self.settings.changed(command.set)
            self._save_wanted |= command.save_now
            if command.want != "run":
                self.status = {"pause": "paused", "cancel": "cancelled"}[command.want]
            self.reporter.applied(command.version, refused)
        if status is not None:
            self.status = status
        if self.callbacks.has_stopped:
            self.total_steps = self.step

    def _ends_epoch(self) -> bool:
        return self.loader.position == 0 or self.step == self.total_steps

    def _evaluation_is_due(self) -> bool:
        every = self.settings.eval_every_steps
        return self._ends_epoch() or (every is not None and self.step % every == 0)

    def _save_is_due(self) -> bool:
        by_epoch, by_step = self.config.checkpoint.every_epochs, self.settings.save_every_steps
        return (
            self._save_wanted
            or self.status in {"paused", "preempted"}
            or self.step == self.total_steps
            or (by_step is not None and self.step % by_step == 0)
            or (by_epoch > 0 and self.loader.position == 0 and self.loader.epoch % by_epoch == 0)
        )

    def _saves_left(self) -> int:
        """At most so many checkpoints are still to be saved; the last step always is."""
        by_epoch, by_step = self.config.checkpoint.every_epochs, self.settings.save_every_steps
        steps = self.total_steps - self.step
        epochs = steps // self.loader.steps_per_epoch
        often = (steps // by_step if by_step else 0) + (epochs // by_epoch if by_epoch else 0)
        return min(steps, often + 1)

    @property
    def _has_examples(self) -> bool:
        return self.config.data.kind == "examples"

    def _as_trained(self) -> TrainConfig:
        """The config with the batches that there are: examples may need shorter rows, or fewer."""
        length = self.dataset.train.length
        if (self.config.batch_size, self.config.context_length) == (self.loader.batch_size, length):
            return self.config
        model = self.config.model.model_copy(update={"context_length": length})
        return self.config.model_copy(update={"batch_size": self.loader.batch_size, "model": model})

    def _describe(self) -> None:
        rows, length = self.loader.rows_per_step, self.dataset.train.length
        shape = self.model.shape
        self.reporter.describe(
            {
                "parameters": shape.parameters,
                "trainable_parameters": self.model.trained_parameters,
                "model": f"{self.model.family}, {len(shape.layers)} layers, hidden size {shape.hidden_size}",
                "method": self.config.method,
                "vocab_size": shape.vocab_size,
                "context_length": self.config.context_length,
                "processes": self.group.size,
                "global_batch_size": rows,
                "tokens_per_step": rows * length,
                "train_tokens": len(self.dataset.train.tokens),
                "steps_per_epoch": self.loader.steps_per_epoch,
                "total_steps": self.total_steps,
                **self.on_devices.facts(),
            }
        )
        if self._has_examples and (finding := few_steps(self.total_steps)) is not None:
            self.reporter.finding(finding)
        for note in (*self.model.notes, *self.on_devices.notes):
            self.reporter.log(note, level="warning")

    def _must_be_worth_saving(self) -> None:
        """A gradient may overflow under a finite loss: its weights are spoiled before the loss tells."""
        # With loss scaling such a step was left out.
        if self._grad_norm is None or self.executor.loss_scale:
            return
        if not math.isfinite(norm := float(self._grad_norm)):
            raise NotFinite(self._not_finite("gradient norm", norm, self.step))

    def _not_finite(self, what: str, value: float, step: int) -> str:
        return (
            f"The {what} is {value} at step {step}, which is not finite: {self._go_on()} a lower "
            "learning_rate."
        )

    def _out_of_memory(self) -> str:
        planned = (self.on_devices.plan.gpu_reserved_bytes or 0) / 1e9
        return (
            f"The GPU ran out of memory at step {self.step}. The plan for this run is {planned:.1f} GB; "
            "another process may use memory that the run needs. Free that memory, or "
            f"{self._go_on()} a smaller batch_size, a lower memory.gpu_budget_gb, or memory.mode stream."
        )

    def _go_on(self) -> str:
        """The beginning of an advice; a checkpoint that is on its way to disk is waited for."""
        with contextlib.suppress(OSError):
            self.manager.finish()
        saved = self.manager.newest()
        return "start again with" if saved is None else f"resume from {saved} with"

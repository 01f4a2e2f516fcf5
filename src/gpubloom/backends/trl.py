"""TrlTrainer: a run of GPU Bloom that TRL trains. Same data, schedule, commands, checkpoints and export.

`Watch` is the Hugging Face adapter of TrainCard with the engine's rules: which names are reported, and when
the run is evaluated, saved and stopped.
"""

import json
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers

from gpubloom.backends.loading import Loaded
from gpubloom.backends.sft import SftTrainer, settings_of
from gpubloom.engine.checkpoint import (
    Progress,
    best_checkpoint,
    checkpoint_folder,
    checkpoint_name,
    directory_size,
    list_checkpoints,
    remove_leftovers,
)
from gpubloom.engine.checkpoint.format import CHECKSUMS_FILE, PROGRESS_FILE
from gpubloom.engine.checkpoint.manager import SAVE_HEARTBEAT_SECONDS
from gpubloom.engine.data import Dataset, Loader
from gpubloom.engine.evaluation.paired import CHANGE_METRICS
from gpubloom.engine.hardware import Compute, choose_compute
from gpubloom.engine.live_settings import LiveSettings
from gpubloom.engine.loss import NotFinite
from gpubloom.engine.optimizer.schedule import Schedule
from gpubloom.engine.samples import SamplePrompts
from gpubloom.engine.shards.atomic_folder import complete_or_absent, sha256_of, sync_files
from gpubloom.engine.transformers_loading import load_tokenizer
from gpubloom.errors import InputError
from gpubloom.plan import TrainConfig
from gpubloom.traincard import Reporter
from gpubloom.traincard.adapters.hugging_face import HFTrainCardCallback
from gpubloom.traincard.adapters.session import numbers
from gpubloom.traincard.checkpoints import training_metadata

# Ends that somebody wants to continue from.
_TO_BE_CONTINUED = {"paused", "preempted"}
_TAKEN = {
    "loss": "train/loss",
    "learning_rate": "learning_rate",
    "grad_norm": "grad_norm",
    "mean_token_accuracy": "train/accuracy",
    "entropy": "train/entropy",
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
        if state.global_step == 0:
            # Of the base model, before anything is learned.
            self._run.sft.evaluate()
            self._run.write_samples()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> Any:
        training, run, step = self._training, self._run, state.global_step
        run.step = step
        run.tokens_seen += run.sft.counts.tokens
        run.trained_tokens += run.sft.counts.trained
        epochs = run.loader.steps_per_epoch
        training.step_done(
            step,
            run.total_steps,
            round(step / epochs, 6),
            round(run.total_steps / epochs, 6),
            run.sft.counts.samples,
        )
        training.speed.set_tokens(run.sft.counts.tokens)
        training.control_handler.apply_commands(self._setters(args, state, **others))
        self._take_up()
        control.should_log = True
        due = self._evaluation_is_due(step)
        control.should_evaluate = due and run.dataset.eval is not None
        if due:
            run.write_samples()
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
            raise NotFinite(self._run.not_finite("loss", loss))
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
                    raise InputError("setting_not_supported", refused[name])
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
        return (
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


class TrlTrainer:
    """One run in one process, like the engine's Trainer: `resume` if it was begun before, then `train`."""

    def __init__(
        self,
        config: TrainConfig,
        dataset: Dataset,
        reporter: Reporter,
        stop: Callable[[], str | None],
        load: Callable[[TrainConfig, Compute], Loaded],
    ) -> None:
        self.config = config
        self.dataset = dataset
        self.reporter = reporter
        self.loader = Loader(
            dataset.train, batch_size=config.batch_size, accumulation=config.accumulation, seed=config.seed
        )
        steps = config.epochs * self.loader.steps_per_epoch
        self.total_steps = min(steps, config.max_steps or steps)
        self.run_dir = Path(reporter.run_dir).resolve()
        self.checkpoints = checkpoint_folder(config, self.run_dir)
        self.step = 0
        self.tokens_seen = 0
        self.trained_tokens = 0
        self.evaluated: tuple[int, dict[str, float]] = (-1, {})
        self._resumed_from: Path | None = None
        # Training time of the attempts before this one, and when this one's began.
        self._earlier_seconds = 0.0
        self._began = time.perf_counter()
        self.compute = choose_compute(config.device, config.precision)
        loaded = load(config, self.compute)
        dataset.must_suit(loaded.model.get_input_embeddings().num_embeddings)
        self._optimizations = loaded.optimizations
        self._watch = Watch(reporter, self, stop)
        self.sft = SftTrainer(
            config,
            loaded,
            settings_of(
                config,
                self.compute,
                batch_size=self.loader.batch_size,
                total_steps=self.total_steps,
                folder=self.checkpoints,
            ),
            self.loader,
            dataset.eval,
            Schedule.create(config.schedule, self.total_steps),
            self._tokenizer(),
            self._watch,
        )
        is_packed = any(getattr(rows, "is_packed", False) for rows in (dataset.train, dataset.eval))
        if is_packed and not self.sft.keeps_documents_apart():
            raise InputError(
                "packing_not_supported",
                f"transformers does not keep packed documents apart for {loaded.model.config.model_type} "
                "models: set data.packing to false.",
            )
        self.sft.remove_callback(transformers.PrinterCallback)
        self.sft.save_now = self.save_checkpoint
        self._samples: SamplePrompts | None = None
        if config.eval.prompts:
            self._samples = SamplePrompts(config, dataset.tokenizer, self.compute.device)
            for note in self._samples.notes:
                reporter.log(note, level="warning")

    def train(self) -> str:
        """Trains to the end, or until told to stop; returns how it ended."""
        remove_leftovers(self.checkpoints)
        self._began = time.perf_counter()
        begun = None if self._resumed_from is None else str(self._resumed_from)
        try:
            if self.step < self.total_steps:
                self.sft.train(resume_from_checkpoint=begun)
            elif begun is not None:
                # Stopped between its last step and its export.
                self.sft._load_from_checkpoint(begun)
        except StoppedAtStart:
            pass
        except torch.OutOfMemoryError as problem:
            raise torch.OutOfMemoryError(
                f"The GPU ran out of memory at step {self.step + 1}: {self._go_on()} a smaller batch_size, a "
                "shorter model.context_length or method qlora, or use backend engine."
            ) from problem
        status = self._watch.status or "completed"
        if status == "completed":
            self._export()
        self.reporter.finish(status)
        return status

    def resume(self) -> None:
        """Continues from the newest checkpoint; without one, the run begins again at step 0."""
        found = list_checkpoints(self.checkpoints)
        if not found:
            self.reporter.log("no checkpoint found: starting from step 0")
            return
        self.reporter.phase("load")
        progress = _read_progress(found[-1])
        if progress.data_fingerprint != self.dataset.fingerprint():
            raise InputError(
                "data_changed",
                f"The training data changed after {found[-1]} was saved: "
                "restore the old data, or start a new run with the new data.",
            )
        self._resumed_from = found[-1]
        self.step, self.tokens_seen = progress.step, progress.tokens_seen
        self.trained_tokens = progress.trained_tokens
        self.sft.paired.restore(progress.first_evaluation)
        self._earlier_seconds = float(progress.metadata.get("training_seconds", 0.0))

    def write_samples(self) -> None:
        """The answers to the sample prompts at this step."""
        if self._samples is None:
            return
        answers = self._samples.answers(
            self.sft.next_logits, lambda: self.reporter.heartbeat(expect_next_in=SAVE_HEARTBEAT_SECONDS)
        )
        for prompt, text in answers:
            self.reporter.sample(prompt, text, self.step)

    def save_checkpoint(self) -> None:
        """All that is needed to continue exactly here, complete or absent."""
        path = self.checkpoints / checkpoint_name(self.step)
        if path.exists():
            return
        if self.compute.precision != "fp16" and not abs(self._watch.grad_norm) < float("inf"):
            # With loss scaling such a step was left out; without, its weights are spoiled.
            raise NotFinite(self.not_finite("gradient norm", self._watch.grad_norm))
        self.reporter.flush()
        epoch, position = divmod(self.step, self.loader.steps_per_epoch)
        metrics = {}
        if self.evaluated[0] == self.step:
            metrics = {name: value for name, value in self.evaluated[1].items() if name not in CHANGE_METRICS}
        progress = Progress(
            step=self.step,
            updates=self.step,
            tokens_seen=self.tokens_seen,
            trained_tokens=self.trained_tokens,
            loader={"epoch": epoch, "position": position},
            data_fingerprint=self.dataset.fingerprint(),
            metrics=metrics,
            loss_scale={},
            metadata=self._metadata(),
            first_evaluation=self.sft.paired.state(),
        )
        with complete_or_absent(path) as folder:
            self.sft.save_training_state(folder)
            self._write_model(folder)
            (folder / PROGRESS_FILE).write_text(_json(asdict(progress)), encoding="utf-8")
            checksums = sync_files(folder, {})
            (folder / CHECKSUMS_FILE).write_text(_json({"sha256": checksums}), encoding="utf-8")
            sync_files(folder, checksums)
        best = best_checkpoint(self.checkpoints)
        self.reporter.checkpoint(
            path,
            {"size": directory_size(path), **progress.metadata},
            step=self.step,
            metrics=metrics,
            best=best is not None and best[0] == path,
        )
        self._forget_old_checkpoints(keep=best[0] if best else path)

    def _metadata(self) -> dict[str, Any]:
        trained, parameters = self.sft.count_parameters()
        return training_metadata(
            seconds=self._earlier_seconds + time.perf_counter() - self._began,
            parameters=parameters,
            trained_parameters=trained,
            method=self.config.method,
            precision=self.compute.precision,
            optimizations=self._in_force(),
        )

    def _in_force(self) -> list[str]:
        found = [*self._optimizations, "chunked loss"]
        if self.config.method != "full":
            found.insert(0, "LoRA adapters")
        if self.compute.precision != "fp32":
            found.append(f"{self.compute.precision} computation")
        if self.sft.args.gradient_checkpointing:
            found.append("gradient checkpointing")
        return found

    def not_finite(self, what: str, value: float) -> str:
        """A sentence for an error."""
        return (
            f"The {what} is {value} at step {self.step}, which is not finite: {self._go_on()} a lower "
            "learning_rate."
        )

    def _export(self) -> None:
        """The final model, complete or absent."""
        final = self.run_dir / "model"
        if final.exists():
            return
        self.reporter.phase("save")
        with complete_or_absent(final) as folder:
            self._write_model(folder)
            sync_files(folder, {})
        self.reporter.phase("idle")

    def _write_model(self, folder: Path) -> None:
        self.sft.save_weights(folder, self.dataset.turn_end)
        self.dataset.tokenizer.save(folder, self.config.context_length)

    def _forget_old_checkpoints(self, keep: Path) -> None:
        for old in list_checkpoints(self.checkpoints)[: -self.config.checkpoint.keep_last]:
            if old != keep:
                shutil.rmtree(old)
                self.reporter.checkpoint_removed(old)

    def _tokenizer(self) -> Any:
        """TRL asks for one; the tokens were made before."""
        assert self.config.model.path is not None
        return load_tokenizer(Path(self.config.model.path))

    def describe(self) -> None:
        """What a person should know about this run."""
        rows = self.loader.rows_per_step
        trained, parameters = self.sft.count_parameters()
        self.reporter.describe(
            {
                "backend": " ".join((self.config.backend, version(self.config.backend))),
                "method": self.config.method,
                "parameters": parameters,
                "trainable_parameters": trained,
                "context_length": self.dataset.train.length,
                "global_batch_size": rows,
                "tokens_per_step": rows * self.dataset.train.length,
                "train_tokens": len(self.dataset.train.tokens),
                "steps_per_epoch": self.loader.steps_per_epoch,
                "total_steps": self.total_steps,
                "device": str(self.compute.device),
                "precision": self.compute.reason,
                "optimizations": "; ".join(self._in_force()),
            }
        )

    def _go_on(self) -> str:
        saved = list_checkpoints(self.checkpoints)
        return f"resume from {saved[-1]} with" if saved else "start again with"


def _read_progress(path: Path) -> Progress:
    """Where a checkpoint stands, once every file of it has the checksum that it was written with."""
    try:
        recorded = json.loads((path / CHECKSUMS_FILE).read_text(encoding="utf-8"))["sha256"]
        damaged = [name for name, expected in recorded.items() if sha256_of(path / name) != expected]
        if damaged:
            raise InputError(
                "damaged_checkpoint", f"{', '.join(damaged)} changed after the checkpoint was saved"
            )
        return Progress(**json.loads((path / PROGRESS_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise InputError(
            "damaged_checkpoint",
            f"{path} is damaged: {problem}; delete this checkpoint folder to resume from the previous "
            "checkpoint.",
        ) from None


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"

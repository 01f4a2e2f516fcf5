"""TrlTrainer: a run of GPU Bloom that TRL trains. Same data, schedule, commands, checkpoints and export."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import transformers

from gpubloom.backends.loading import Loaded
from gpubloom.backends.sft import SftTrainer, settings_of
from gpubloom.backends.watching import StoppedAtStart, Watch
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
from gpubloom.engine.data import Dataset, Loader
from gpubloom.engine.hardware import Compute, choose_compute
from gpubloom.engine.optimizer.schedule import Schedule
from gpubloom.engine.shards.whole_folder import complete_or_absent, sha256_of, sync_files
from gpubloom.plan import TrainConfig
from gpubloom.traincard import Reporter


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
        self.compute = choose_compute(config.device, config.precision)
        loaded = load(config, self.compute)
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
        self.sft.remove_callback(transformers.PrinterCallback)
        self.sft.save_now = self.save_checkpoint

    def train(self) -> str:
        """Trains to the end, or until told to stop; returns how it ended."""
        remove_leftovers(self.checkpoints)
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
                "shorter model.context_length or method qlora, or leave the backend to the engine."
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
            self.reporter.log("no checkpoint yet: starting from step 0")
            return
        self.reporter.phase("load")
        progress = _read_progress(found[-1])
        if progress.data_fingerprint != self.dataset.fingerprint():
            raise ValueError(
                f"The training data changed since {found[-1]} was saved: "
                "put it back, or start a new run with the new data."
            )
        self._resumed_from = found[-1]
        self.step, self.tokens_seen = progress.step, progress.tokens_seen
        self.trained_tokens = progress.trained_tokens

    def save_checkpoint(self) -> None:
        """All that is needed to continue exactly here, complete or absent."""
        path = self.checkpoints / checkpoint_name(self.step)
        if path.exists():
            return
        if self.compute.precision != "fp16" and not abs(self._watch.grad_norm) < float("inf"):
            # With loss scaling such a step was left out; without, its weights are spoiled.
            raise FloatingPointError(self.not_finite("gradient's norm", self._watch.grad_norm))
        self.reporter.flush()
        epoch, position = divmod(self.step, self.loader.steps_per_epoch)
        metrics = self.evaluated[1] if self.evaluated[0] == self.step else {}
        progress = Progress(
            step=self.step,
            updates=self.step,
            tokens_seen=self.tokens_seen,
            trained_tokens=self.trained_tokens,
            loader={"epoch": epoch, "position": position},
            data_fingerprint=self.dataset.fingerprint(),
            metrics=metrics,
            loss_scale={},
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
            {"size": directory_size(path)},
            step=self.step,
            metrics=metrics,
            best=best is not None and best[0] == path,
        )
        self._forget_old_checkpoints(keep=best[0] if best else path)

    def not_finite(self, what: str, value: float) -> str:
        """A sentence for an error."""
        return (
            f"The {what} is {value} at step {self.step}, not finite: {self._go_on()} a lower learning_rate."
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
        return transformers.AutoTokenizer.from_pretrained(self.config.model.path, local_files_only=True)

    def describe(self) -> None:
        """What a person should know about this run."""
        rows = self.loader.rows_per_step
        optimizations = [*self._optimizations, "loss in chunks"]
        if self.sft.args.gradient_checkpointing:
            optimizations.append("gradient checkpointing")
        self.reporter.describe(
            {
                "backend": " ".join((self.config.backend, metadata.version(self.config.backend))),
                "method": self.config.method,
                "context_length": self.dataset.train.length,
                "global_batch_size": rows,
                "tokens_per_step": rows * self.dataset.train.length,
                "train_tokens": len(self.dataset.train.tokens),
                "steps_per_epoch": self.loader.steps_per_epoch,
                "total_steps": self.total_steps,
                "device": str(self.compute.device),
                "precision": self.compute.reason,
                "optimizations": ", ".join(optimizations),
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
            raise ValueError(f"{', '.join(damaged)} changed since it was written")
        return Progress(**json.loads((path / PROGRESS_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise ValueError(
            f"{path} is damaged: {problem}; delete the folder to resume from the checkpoint before it."
        ) from None


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"

"""A run that is trained in this process, and what its files say afterwards."""

import json
import shutil
from pathlib import Path
from typing import Any

from gpubloom.engine import Dataset, Model, Trainer
from gpubloom.engine.converting import convert
from gpubloom.plan import TrainConfig
from gpubloom.traincard import Reporter, RunFiles


class Run:
    """A run directory that is trained in this process, as often as a test likes."""

    def __init__(self, folder: Path, config: TrainConfig) -> None:
        self.folder = folder
        self.config = config

    def train(self, *, resume: bool = False, stop_at: int | None = None, status: str = "paused") -> Trainer:
        """Trains to the end, or as if a signal had come during step `stop_at`."""
        with Reporter(self.folder, telemetry_seconds=0) as reporter:
            dataset = Dataset.open(self.config.data, self.config.context_length)
            model = Model.open(
                self.config, vocab_size=dataset.vocab_size, end_of_text=dataset.tokenizer.end_of_text
            )
            trainer = Trainer(
                self.config, model, dataset, reporter, lambda: status if trainer.step == stop_at else None
            )
            if resume:
                trainer.resume()
            trainer.train()
        return trainer

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Events of all attempts, oldest first."""
        return read_events(self.folder, kind)

    def losses(self) -> dict[int, float]:
        """The training loss of every step; a repeated step must have had the same loss."""
        return read_losses(self.folder)

    def weights(self) -> bytes:
        return (self.folder / "model" / "model.safetensors").read_bytes()


def read_events(run_dir: Path, kind: str) -> list[dict[str, Any]]:
    files = RunFiles(run_dir)
    paths = [*files.sealed().values(), files.tail(0)]
    lines = (line for path in paths for line in path.read_text(encoding="utf-8").splitlines())
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


def read_losses(run_dir: Path) -> dict[int, float]:
    losses: dict[int, float] = {}
    for event in read_events(run_dir, "metric"):
        loss = event["values"].get("train/loss")
        if loss is not None:
            assert losses.setdefault(event["step"], loss) == loss, (
                f"step {event['step']} was repeated differently"
            )
    return losses


def in_shards(checkpoint: Path) -> str:
    """Puts the same checkpoint in sharded form in its place."""
    whole = checkpoint.with_name("whole")
    checkpoint.rename(whole)
    convert(whole, checkpoint, "sharded")
    shutil.rmtree(whole)
    return str(checkpoint)

"""Runs of a tiny model that are trained in this process by whichever backend a config names."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpubloom.backends import open_trainer
from gpubloom.engine import Dataset, Model, Trainer
from gpubloom.plan import TrainConfig
from gpubloom.traincard import Reporter, read_all

Commands = Mapping[int, Callable[[], object]]


def write_examples(path: Path, count: int = 26) -> Path:
    rows = [
        {"prompt": f"What is {n}?", "completion": f"It is {n * 7}, the keeper says."} for n in range(count)
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


class Run:
    """A run directory. `at`: what is done when a step has ended, before the trainer looks for commands."""

    def __init__(self, folder: Path, config: TrainConfig) -> None:
        self.folder = folder
        self.config = config

    def train(self, *, resume: bool = False, at: Commands | None = None) -> str:
        def stop() -> str | None:
            if command := (at or {}).get(trainer.step):
                status = command()
                return status if isinstance(status, str) else None
            return None

        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "config.json").write_text(self.config.to_json(), encoding="utf-8")
        trainer: Any
        with Reporter(self.folder, telemetry_seconds=0) as reporter:
            dataset = Dataset.open(self.config.data, self.config.context_length)
            if self.config.backend == "engine":
                model = Model.open(
                    self.config, vocab_size=dataset.vocab_size, end_of_text=dataset.tokenizer.end_of_text
                )
                trainer = Trainer(self.config, model, dataset, reporter, stop)
            else:
                trainer = open_trainer(self.config, dataset, reporter, stop)
            if resume:
                trainer.resume()
            return str(trainer.train())

    def series(self, name: str) -> dict[int, float]:
        """Values by step; a step that was repeated must have said the same."""
        found: dict[int, float] = {}
        for event in read_all(self.folder):
            for known, value in event.series() if event.kind == "metric" else ():
                if known == name:
                    assert event.step is not None
                    assert found.setdefault(event.step, value) == value, f"{name} of step {event.step}"
        return found

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [dict(event.fields) for event in read_all(self.folder) if event.kind == kind]

    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "checkpoints").iterdir())

    def weights(self) -> bytes:
        return next((self.folder / "model").glob("*model.safetensors")).read_bytes()

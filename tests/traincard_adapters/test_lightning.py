"""The Lightning callback, with the real Trainer."""

import csv
from pathlib import Path
from typing import Any

import pytest

from gpubloom.traincard import ControlFile, Reporter, load_checkpoints, load_latest, read_all
from gpubloom.traincard.what_ran import load_what_ran
from tests.traincard_adapters.conftest import events_of, last_refusals, phases_of, series_of

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning.pytorch")

from gpubloom.traincard.adapters import LightningTrainCardCallback  # noqa: E402

pytestmark = [
    pytest.mark.xdist_group("frameworks"),
    # Of Lightning's own advice about workers and loggers.
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]


class Regression(lightning.LightningModule):  # type: ignore[misc]
    """Five batches an epoch; momentum, so that a wrong resume shows in the losses."""

    def __init__(self, logs: bool = True, commands: dict[int, Any] | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 1)
        self.logs = logs
        self.commands = commands or {}
        self.losses: list[float] = []
        self.rates: list[float] = []
        self.clips: list[float | None] = []

    def training_step(self, batch: Any, number: int) -> Any:
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.losses.append(float(loss))
        if self.logs:
            self.log("train_loss", loss, on_step=True, on_epoch=True)
        if command := self.commands.get(self.trainer.global_step + 1):
            command()
        return loss

    def validation_step(self, batch: Any, number: int) -> None:
        self.log("val_loss", torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1]))

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.rates.append(optimizer.param_groups[0]["lr"])
        self.clips.append(self.trainer.gradient_clip_val)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=20)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def loader(different: bool = True) -> Any:
    inputs = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
    if not different:
        # Lightning does not bring a plain loader back to its place within an epoch.
        inputs = inputs[:4].repeat(5, 1)
    data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
    return torch.utils.data.DataLoader(data, batch_size=4)


def trainer_of(tmp_path: Path, callback: Any, **options: Any) -> Any:
    settings: dict[str, Any] = {
        "max_epochs": 2,
        "accelerator": "cpu",
        "devices": 1,
        "log_every_n_steps": 1,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "logger": lightning.loggers.CSVLogger(tmp_path / "csv"),
        "default_root_dir": tmp_path,
        **options,
    }
    extra = settings.pop("callbacks", [])
    return lightning.Trainer(callbacks=[callback, *extra], **settings)


def logged(tmp_path: Path, column: str) -> list[tuple[int, float]]:
    """Lightning's own record, with steps counted from 1."""
    rows = csv.DictReader(next((tmp_path / "csv").rglob("metrics.csv")).open())
    return [(int(row["step"]) + 1, float(row[column])) for row in rows if row[column]]


def test_what_lightning_logged_is_in_the_run_at_the_same_step(
    tmp_path: Path, run_dir: Path, reporter: Reporter
) -> None:
    module = Regression()
    trainer = trainer_of(tmp_path, LightningTrainCardCallback(reporter))
    trainer.fit(module, loader(), loader())
    reporter.flush()
    assert series_of(run_dir, "train/loss") == logged(tmp_path, "train_loss_step")
    assert [value for _, value in series_of(run_dir, "train/loss")] == pytest.approx(module.losses)
    assert series_of(run_dir, "train/loss_epoch") == logged(tmp_path, "train_loss_epoch")
    assert series_of(run_dir, "eval/loss") == logged(tmp_path, "val_loss")
    steps = list(range(1, 11))
    assert series_of(run_dir, "train/learning_rate") == list(zip(steps, module.rates, strict=True))
    assert [step for step, _ in series_of(run_dir, "train/grad_norm")] == steps
    samples, seconds = (
        dict(series_of(run_dir, f"train/{n}")) for n in ("samples_per_second", "step_seconds")
    )
    assert all(samples[step] * seconds[step] == pytest.approx(4) for step in steps)
    latest = load_latest(run_dir)
    assert latest is not None
    assert (latest["step"], latest["total_steps"], latest["epoch"], latest["epochs"]) == (10, 10, 2.0, 2)
    assert (latest["status"], latest["facts"]["parameters"]) == ("completed", 5)
    assert latest["facts"]["global_batch_size"] == 4
    ran = load_what_ran(run_dir)
    assert (ran["configs"]["Trainer"]["max_epochs"], ran["configs"]["Trainer"]["precision"]) == (2, "32-true")
    assert ran["configs"]["optimizer"]["optimizer"] == "SGD"
    assert ran["configs"]["optimizer"]["momentum"] == 0.9
    train, held_out = ran["datasets"]
    assert (train["name"], train["rows"], held_out["name"]) == ("train", 20, "eval")
    assert train["fingerprint"] == held_out["fingerprint"]
    assert phases_of(run_dir) == ["train", "eval", "train", "eval", "train", "idle"]


def test_a_module_that_logs_nothing_still_has_its_loss_recorded(
    tmp_path: Path, run_dir: Path, reporter: Reporter
) -> None:
    module = Regression(logs=False)
    trainer_of(tmp_path, LightningTrainCardCallback(reporter), logger=False).fit(module, loader())
    reporter.flush()
    assert dict(series_of(run_dir, "train/loss")) == pytest.approx(dict(enumerate(module.losses, 1)))


def test_lightnings_own_checkpoints_are_recorded_with_metrics_and_the_best(
    tmp_path: Path, run_dir: Path, reporter: Reporter
) -> None:
    keep = lightning.callbacks.ModelCheckpoint(tmp_path / "kept", monitor="val_loss", save_top_k=1)
    trainer = trainer_of(
        tmp_path, LightningTrainCardCallback(reporter), enable_checkpointing=True, callbacks=[keep]
    )
    trainer.fit(Regression(), loader(), loader())
    reporter.flush()
    index = load_checkpoints(run_dir)
    assert index is not None
    assert index["best"] == keep.best_model_path
    entry = next(entry for entry in index["checkpoints"] if entry["path"] == keep.best_model_path)
    assert entry["metrics"]["val_loss"] == pytest.approx(float(keep.best_model_score))
    assert entry["size"] == Path(keep.best_model_path).stat().st_size
    assert {entry["path"] for entry in index["checkpoints"]} == {
        str(p) for p in (tmp_path / "kept").iterdir()
    }


def test_a_pause_saves_and_the_resumed_fit_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, run_dir: Path, reporter: Reporter
) -> None:
    whole = Regression()
    trainer_of(tmp_path / "whole", LightningTrainCardCallback(run_dir=tmp_path / "whole/run")).fit(
        whole, loader(different=False), loader()
    )
    file = ControlFile(run_dir)
    first = Regression(commands={3: lambda: file.want("pause")})
    trainer_of(tmp_path, LightningTrainCardCallback(reporter), min_epochs=2).fit(
        first, loader(different=False), loader()
    )
    assert len(first.losses) == 3
    reporter.close()
    latest = load_latest(run_dir)
    assert latest is not None
    assert (latest["status"], latest["checkpoint"]["path"]) == ("paused", "checkpoints/step-00000003.ckpt")

    file.want("run")
    second = Regression()
    with Reporter(run_dir, telemetry_seconds=0) as again:
        trainer = trainer_of(tmp_path / "again", LightningTrainCardCallback(again))
        trainer.fit(
            second, loader(different=False), loader(), ckpt_path=run_dir / "checkpoints/step-00000003.ckpt"
        )
    assert first.losses + second.losses == pytest.approx(whole.losses)
    assert [step for step, _ in series_of(run_dir, "train/loss")] == list(range(1, 11))
    assert [event.fields["from_step"] for event in events_of(run_dir, "resumed")] == [3]


def test_cancel_save_and_settings_take_effect_after_the_step(
    tmp_path: Path, run_dir: Path, reporter: Reporter
) -> None:
    file = ControlFile(run_dir)
    wanted = {
        "learning_rate": 0.05, "weight_decay": 0.2, "clip_norm": 0.5, "eval_every_steps": 3, "color": "red",
        "save_every_steps": 6,
    }  # fmt: skip
    module = Regression(commands={2: file.save, 4: lambda: file.set(wanted), 8: lambda: file.want("cancel")})
    trainer = trainer_of(tmp_path, LightningTrainCardCallback(reporter))
    trainer.fit(module, loader(), loader())
    reporter.flush()
    assert len(module.losses) == 8
    assert load_latest(run_dir)["status"] == "cancelled"  # type: ignore[index]
    assert [event.step for event in events_of(run_dir, "checkpoint")] == [2, 6]
    assert module.rates == pytest.approx([(0.1 if n < 4 else 0.05) * (20 - n) / 20 for n in range(8)])
    assert module.clips == [None] * 4 + [0.5] * 4
    assert trainer.optimizers[0].param_groups[0]["weight_decay"] == 0.2
    # Lightning validates once more when it is told to stop.
    assert [step for step, _ in series_of(run_dir, "eval/loss")] == [6, 8]
    assert last_refusals(run_dir).keys() == {"color"}


def test_an_exception_is_recorded_even_when_somebody_catches_it(tmp_path: Path, run_dir: Path) -> None:
    def explode() -> None:
        raise RuntimeError("no more")

    callback = LightningTrainCardCallback(run_dir=run_dir)
    with pytest.raises(RuntimeError, match="no more"):
        trainer_of(tmp_path, callback).fit(Regression(commands={2: explode}), loader())
    latest = load_latest(run_dir)
    assert latest is not None
    assert (latest["status"], latest["error"]["message"]) == ("failed", "no more")
    trainer_of(tmp_path, callback).fit(Regression(), loader())
    attempts = {event.attempt for event in read_all(run_dir)}
    assert (attempts, load_latest(run_dir)["status"]) == ({1, 2}, "completed")  # type: ignore[index]


def test_a_learning_rate_monitor_does_not_double_the_rate(
    tmp_path: Path, run_dir: Path, reporter: Reporter
) -> None:
    monitor = lightning.callbacks.LearningRateMonitor(logging_interval="step")
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", log_every_n_steps=1, enable_progress_bar=False,
        callbacks=[monitor, LightningTrainCardCallback(reporter)], default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(Regression(), loader())
    reporter.close()
    names = {name for event in read_all(run_dir) if event.kind == "metric" for name, _ in event.series()}
    assert {name for name in names if "lr" in name or "rate" in name} == {"train/learning_rate"}
    assert len(series_of(run_dir, "train/learning_rate")) == 5

"""The loop: what it reports, keeps, obeys and refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gpubloom.engine.checkpoint import list_checkpoints
from gpubloom.engine.data import Batch
from gpubloom.engine.executors.blocks import BlockExecutor
from gpubloom.engine.live_settings import LiveSettings
from gpubloom.engine.trainer import Trainer
from gpubloom.plan import TrainConfig
from gpubloom.traincard import ControlFile
from tests.engine.runs import Run
from tests.errors import raises


def names(run: Run) -> list[str]:
    return [path.name for path in list_checkpoints(run.folder / "checkpoints")]


def test_a_run_reports_what_charts_and_progress_bars_need(make_run: Callable[..., Run]) -> None:
    run = make_run(max_steps=12, eval={"every_steps": 5})
    run.train()
    values = [event["values"] for event in run.events("metric")]
    step = {
        "train/loss",
        "learning_rate",
        "grad_norm",
        "tokens_per_second",
        "samples_per_second",
        "tokens_seen",
    }
    assert all(step <= set(found) for found in values if "train/loss" in found)
    evaluations = [event for event in run.events("metric") if "eval/loss" in event["values"]]
    assert [event["step"] for event in evaluations] == [5, 10, 12]
    assert {"eval/perplexity", "eval/accuracy"} <= set(evaluations[0]["values"])
    latest = json.loads((run.folder / "traincard" / "latest.json").read_text())
    assert (latest["status"], latest["step"], latest["total_steps"]) == ("completed", 12, 12)
    assert latest["values"]["train/tokens_seen"]["value"] == 12 * 8 * 32
    assert latest["facts"]["precision"].startswith("fp32: ")


def test_loss_falls_and_the_final_model_is_exported(make_run: Callable[..., Run]) -> None:
    run = make_run(learning_rate=3e-3, epochs=2)
    run.train()
    losses = list(run.losses().values())
    assert losses[-1] < losses[0] - 2
    assert {path.name for path in (run.folder / "model").iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }


def test_a_checkpoint_is_saved_every_epoch_by_default(make_run: Callable[..., Run]) -> None:
    run = make_run(epochs=3, batch_size=32)
    trainer = run.train()
    per_epoch = trainer.loader.steps_per_epoch
    saved = [event["step"] for event in run.events("checkpoint")]
    assert saved == [per_epoch, 2 * per_epoch, 3 * per_epoch]


def test_only_the_last_and_the_best_are_kept(make_run: Callable[..., Run]) -> None:
    # A learning rate that spoils the model after a good start makes an early checkpoint the best.
    run = make_run(
        max_steps=20,
        checkpoint={"every_steps": 2, "keep_last": 2, "every_epochs": 0},
        eval={"every_steps": 2},
        schedule={"warmup_steps": 0},
    )
    ControlFile(run.folder).set({"learning_rate": 0.002})
    original = Trainer.train_step

    def spoil(self: Trainer, batch: object) -> float:
        if self.step == 8:
            ControlFile(run.folder).set({"learning_rate": 2.0})
        return original(self, batch)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "train_step", spoil)
        run.train()
    assert names(run) == ["step-00000008", "step-00000018", "step-00000020"]
    index = json.loads((run.folder / "traincard" / "checkpoints.json").read_text())
    assert index["best"] == "checkpoints/step-00000008"
    assert len(index["checkpoints"]) == 3


def test_pause_saves_and_ends_and_resume_goes_on(make_run: Callable[..., Run]) -> None:
    run = make_run(max_steps=10)
    ControlFile(run.folder).want("pause")
    assert run.train().status == "paused"
    ControlFile(run.folder).want("run")
    assert run.train(resume=True).status == "completed"
    assert [event["status"] for event in run.events("end")] == ["paused", "completed"]
    assert [event["version"] for event in run.events("applied")] == [1, 2]


def at_step(patch: pytest.MonkeyPatch, step: int, command: Callable[[], object]) -> None:
    """Sends a command while the trainer is in a step, as a person would."""
    original = Trainer.train_step

    def train_step(self: Trainer, batch: object) -> float:
        if self.step + 1 == step:
            command()
        return original(self, batch)  # type: ignore[arg-type]

    patch.setattr(Trainer, "train_step", train_step)


def test_a_command_takes_effect_at_the_end_of_its_step(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(max_steps=20)
    at_step(monkeypatch, 7, lambda: ControlFile(run.folder).want("pause"))
    assert run.train().step == 7
    assert names(run) == ["step-00000007"]


def test_cancel_ends_without_a_save(make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(max_steps=20)
    at_step(monkeypatch, 4, lambda: ControlFile(run.folder).want("cancel"))
    assert run.train().status == "cancelled"
    assert names(run) == []
    assert not (run.folder / "model").exists()


def test_save_now_saves_once_and_goes_on(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(max_steps=12)
    at_step(monkeypatch, 5, lambda: ControlFile(run.folder).save())
    assert run.train().status == "completed"
    assert [event["step"] for event in run.events("checkpoint")] == [5, 12]


def test_settings_change_while_training_and_refusals_are_told(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(max_steps=12, schedule={"warmup_steps": 0, "final_fraction": 1.0})
    wanted = {"learning_rate": 5e-4, "eval_every_steps": 3, "weight_decay": "much", "momentum": 0.9}
    at_step(monkeypatch, 4, lambda: ControlFile(run.folder).set(wanted))
    trainer = run.train()
    rates = {event["step"]: event["values"].get("learning_rate") for event in run.events("metric")}
    assert rates[4] == 1e-3
    assert rates[5] == 5e-4
    assert trainer.settings.weight_decay == 0.1
    assert [event["step"] for event in run.events("metric") if "eval/loss" in event["values"]] == [6, 9, 12]
    applied = run.events("applied")[0]
    assert set(applied["refused"]) == {"weight_decay", "momentum"}


@pytest.mark.parametrize("rate", [0, -1, 11, float("inf"), True, "fast"])
def test_an_impossible_learning_rate_is_refused(rate: object) -> None:
    settings, refused = LiveSettings.of(TrainConfig()).changed({"learning_rate": rate})
    assert "learning_rate" in refused
    assert settings == LiveSettings.of(TrainConfig())


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_checkpoint(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(max_steps=60, checkpoint={"every_steps": 1})
    original = Trainer.train_step

    def poison(self: Trainer, batch: object) -> float:
        if self.step == 3:
            self.executor.stores[0].master.fill_(float("nan"))
        return original(self, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(Trainer, "train_step", poison)
    with raises(
        FloatingPointError,
        code="not_finite",
        match="step-0000.*learning_rate",
    ):
        run.train()
    latest = json.loads((run.folder / "traincard" / "latest.json").read_text())
    assert latest["status"] == "failed"
    assert latest["error"]["cause"] == "nan_loss"
    assert names(run)[-1] == "step-00000003"


@pytest.fixture
def reads_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers of this test read a loss when the next step has been ordered, as they do on a GPU."""
    original = Trainer.__init__

    def late(self: Trainer, *given: Any, **named: Any) -> None:
        original(self, *given, **named)
        self._reads_late = True

    monkeypatch.setattr(Trainer, "__init__", late)


def test_a_loss_that_is_read_late_is_reported_with_its_own_step(
    make_run: Callable[..., Run], request: pytest.FixtureRequest
) -> None:
    settings = {"max_steps": 9, "eval": {"every_steps": 4}, "checkpoint": {"every_steps": 3}}
    at_once = make_run("at_once", **settings)
    at_once.train()
    request.getfixturevalue("reads_late")
    late = make_run("late", **settings)
    late.train(stop_at=5)
    late.train(resume=True)
    assert late.losses() == at_once.losses()
    assert list(late.losses()) == list(range(1, 10))
    assert late.weights() == at_once.weights()
    evaluated = [
        [event["values"]["eval/loss"] for event in run.events("metric") if "eval/loss" in event["values"]]
        for run in (at_once, late)
    ]
    assert evaluated[0] == evaluated[1]


@pytest.mark.usefixtures("reads_late")
@pytest.mark.parametrize("every", [2, 60])
def test_a_loss_that_is_no_number_and_read_late_is_never_saved(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    run = make_run(max_steps=60, checkpoint={"every_steps": every})
    original = Trainer.train_step

    def poison(self: Trainer, batch: Batch) -> None:
        if self.step == 3:
            self.executor.stores[0].master.fill_(float("nan"))
        original(self, batch)

    monkeypatch.setattr(Trainer, "train_step", poison)
    with raises(FloatingPointError, code="not_finite", match="nan at step 4"):
        run.train()
    assert names(run) == (["step-00000002"] if every == 2 else [])
    assert list(run.losses()) == [1, 2, 3]


def test_weights_that_an_overflowing_gradient_spoiled_are_never_saved(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(max_steps=60, checkpoint={"every_steps": 1})
    original = BlockExecutor.optimizer_step

    def overflowing(self: BlockExecutor, lr: float) -> torch.Tensor:
        if self.updates == 3:
            self.gradients._squares.fill_(float("inf"))
        return original(self, lr)

    monkeypatch.setattr(BlockExecutor, "optimizer_step", overflowing)
    with raises(
        FloatingPointError,
        code="not_finite",
        match="inf at step 4.*step-00000003",
    ):
        run.train()
    assert names(run)[-1] == "step-00000003"


def test_a_gpu_out_of_memory_names_the_plan_the_checkpoint_and_what_to_change(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(max_steps=60, checkpoint={"every_steps": 1})
    original = BlockExecutor.forward_backward

    def too_much(self: BlockExecutor, batch: Batch) -> torch.Tensor:
        if self.updates == 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return original(self, batch)

    monkeypatch.setattr(BlockExecutor, "forward_backward", too_much)
    advice = r"at step 4\..* resume from .*step-00000003 with a smaller batch_size"
    with pytest.raises(torch.OutOfMemoryError, match=advice):
        run.train()
    latest = json.loads((run.folder / "traincard" / "latest.json").read_text())
    assert latest["status"] == "failed"
    assert latest["error"]["cause"] == "gpu_out_of_memory"
    assert names(run)[-1] == "step-00000003"


def test_checkpoints_outside_the_run_lie_in_a_folder_named_after_it(
    make_run: Callable[..., Run], tmp_path: Path
) -> None:
    run = make_run("my-run", max_steps=3, checkpoint={"directory": str(tmp_path / "elsewhere")})
    run.train()
    assert (tmp_path / "elsewhere" / "my-run" / "step-00000003").is_dir()
    assert not (run.folder / "checkpoints").exists()


def test_a_bpe_run_trains_and_resumes(make_run: Callable[..., Run], text_file: Path) -> None:
    data = {"train_path": str(text_file), "tokenizer": {"kind": "bpe", "vocab_size": 400}}
    whole, parts = make_run("whole", data=data, max_steps=8), make_run("parts", data=data, max_steps=8)
    whole.train()
    parts.train(stop_at=3)
    parts.train(resume=True)
    assert whole.losses() == parts.losses()


def test_samples_per_second_are_the_rows_of_the_steps_by_their_time(make_run: Callable[..., Run]) -> None:
    run = make_run(max_steps=3, batch_size=4, accumulation=2)
    run.train()
    reported = [event["values"] for event in run.events("metric") if "train/loss" in event["values"]]
    for values in reported:
        assert values["tokens_per_second"] / values["samples_per_second"] == pytest.approx(32)

"""The Accelerate tracker, in a real Accelerate loop."""

from pathlib import Path
from typing import Any

import pytest

from gpubloom.traincard import ControlFile, Reporter, load_latest
from tests.traincard_adapters.conftest import events_of, last_refusals, series_of

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")

from gpubloom.traincard.adapters import Track, TrainCardTracker  # noqa: E402

pytestmark = [
    pytest.mark.xdist_group("frameworks"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]


class Loop:
    """Ten batches in two epochs; every second one completes a step."""

    def __init__(self, tracker: TrainCardTracker) -> None:
        torch.manual_seed(0)
        self.tracker = tracker
        self.accelerator = accelerate.Accelerator(cpu=True, log_with=tracker, gradient_accumulation_steps=2)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=10)
        inputs = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
        data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
        self.model, self.optimizer, self.scheduler, self.loader = self.accelerator.prepare(
            model, optimizer, scheduler, torch.utils.data.DataLoader(data, batch_size=4)
        )
        self.accelerator.init_trackers("regression", {"hidden": 4})
        self.losses: list[tuple[int, float]] = []
        self.rates: list[float] = []

    def train(self, commands: dict[int, Any] | None = None, resume: bool = False) -> Track:
        track = self.tracker.track(self.accelerator, self.loader, epochs=2, report_every=1)
        if resume:
            track.resume()
        for _ in range(2):
            for x, y in track:
                with self.accelerator.accumulate(self.model):
                    loss = torch.nn.functional.mse_loss(self.model(x), y)
                    self.accelerator.backward(loss)
                    if self.accelerator.sync_gradients:
                        self.rates.append(self.optimizer.param_groups[0]["lr"])
                    self.optimizer.step()
                    self.scheduler.step()
                    self.optimizer.zero_grad()
                self.accelerator.log({"train_loss": loss, "note": "not a number"})
                self.losses.append((self.tracker.step, loss.item()))
                if self.accelerator.sync_gradients and (command := (commands or {}).get(self.tracker.step)):
                    command()
            self.accelerator.log({"eval_loss": self.losses[-1][1]}, step=self.tracker.step)
        self.accelerator.end_training()
        return track


@pytest.fixture(autouse=True)
def _fresh_state() -> Any:
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def test_what_the_loop_logs_is_in_the_run(run_dir: Path, reporter: Reporter) -> None:
    loop = Loop(TrainCardTracker(reporter))
    loop.train()
    assert series_of(run_dir, "train/loss") == loop.losses
    assert [step for step, _ in loop.losses] == [step for step in range(1, 7) for _ in range(2)]
    assert series_of(run_dir, "train/learning_rate") == list(enumerate(loop.rates, 1))
    assert len(series_of(run_dir, "train/grad_norm")) == 6
    assert [step for step, _ in series_of(run_dir, "eval/loss")] == [3, 6]
    samples, seconds = (
        dict(series_of(run_dir, f"train/{n}")) for n in ("samples_per_second", "step_seconds")
    )
    assert all(samples[step] * seconds[step] == pytest.approx(8) for step in samples)
    latest = load_latest(run_dir)
    assert latest is not None
    assert (latest["status"], latest["step"], latest["total_steps"]) == ("completed", 6, 6)
    assert (latest["facts"]["hidden"], latest["facts"]["parameters"]) == (4, 5)


def test_a_pause_saves_the_accelerators_state_and_the_loop_resumes_from_it(
    tmp_path: Path, run_dir: Path, reporter: Reporter
) -> None:
    whole = Loop(TrainCardTracker(run_dir=tmp_path / "whole"))
    whole.train()
    file = ControlFile(run_dir)
    first = Loop(TrainCardTracker(reporter))
    track = first.train({4: lambda: file.want("pause")})
    assert track.stopped == "paused"
    latest = load_latest(run_dir)
    assert latest is not None
    assert (latest["status"], latest["checkpoint"]["path"]) == ("paused", "checkpoints/step-00000004")

    file.want("run")
    second = Loop(TrainCardTracker(run_dir=run_dir))
    second.train(resume=True)
    assert first.losses + second.losses == whole.losses
    assert [event.fields["from_step"] for event in events_of(run_dir, "resumed")] == [4]


def test_cancel_save_and_settings_take_effect_after_the_step(run_dir: Path, reporter: Reporter) -> None:
    file = ControlFile(run_dir)
    loop = Loop(TrainCardTracker(reporter))
    wanted = {"learning_rate": 0.05, "weight_decay": 0.2, "save_every_steps": 3, "clip_norm": 1.0}
    track = loop.train({1: file.save, 2: lambda: file.set(wanted), 5: lambda: file.want("cancel")})
    assert (track.stopped, len(loop.losses)) == ("cancelled", 10)
    assert load_latest(run_dir)["status"] == "cancelled"  # type: ignore[index]
    assert [event.step for event in events_of(run_dir, "checkpoint")] == [1, 3]
    before, after = loop.rates[:2], loop.rates[2:]
    assert before == pytest.approx([0.1, 0.09])
    assert after == pytest.approx([0.05 * (10 - step) / 10 for step in (2, 3, 4)])
    assert loop.optimizer.param_groups[0]["weight_decay"] == 0.2
    assert last_refusals(run_dir).keys() == {"clip_norm"}


def test_the_documented_loop_trains_all_its_epochs(run_dir: Path, reporter: Reporter) -> None:
    text = (Path(__file__).parents[2] / "docs" / "traincard-adapters.md").read_text(encoding="utf-8")
    snippet = (
        text.partition("# Accelerate\n")[2].partition("\ntrack = ")[0].replace("...", "loss = train(batch)")
    )
    trained: list[Any] = []
    names = {
        "TrainCardTracker": lambda: TrainCardTracker(reporter),
        "Accelerator": lambda log_with: accelerate.Accelerator(cpu=True, log_with=log_with),
        "config": {"hidden": 4},
        "loader": [1.0, 2.0, 3.0],
        "train": lambda batch: trained.append(batch) or batch,
    }
    exec(snippet, names)
    assert trained == [1.0, 2.0, 3.0] * 3
    assert [step for step, _ in series_of(run_dir, "train/loss")] == list(range(1, 10))
    assert (load_latest(run_dir) or {})["status"] == "completed"
    assert events_of(run_dir, "log") == []


def test_a_loop_that_stops_after_one_of_three_epochs_is_told(run_dir: Path, reporter: Reporter) -> None:
    tracker = TrainCardTracker(reporter)
    accelerator = accelerate.Accelerator(cpu=True, log_with=tracker)
    accelerator.init_trackers("regression")
    for _ in tracker.track(accelerator, [1.0, 2.0], epochs=3):
        pass
    accelerator.end_training()
    assert ["trained 1 of 3 epochs" in event.fields["line"] for event in events_of(run_dir, "log")] == [True]


def test_a_state_that_the_loop_saves_by_itself_is_listed(
    tmp_path: Path, run_dir: Path, reporter: Reporter
) -> None:
    loop = Loop(TrainCardTracker(reporter))
    own = tmp_path / "mine"
    loop.train({2: lambda: loop.accelerator.save_state(str(own)), 4: ControlFile(run_dir).save})
    saved = [(event.step, event.fields["path"]) for event in events_of(run_dir, "checkpoint")]
    assert saved == [(2, str(own)), (4, "checkpoints/step-00000004")]
    assert (own / "model.safetensors").exists()

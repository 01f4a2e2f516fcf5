"""A hand-written PyTorch loop."""

from pathlib import Path
from typing import Any

import pytest

from gpubloom.traincard import ControlFile, Reporter, load_latest
from gpubloom.traincard.what_ran import load_what_ran
from tests.traincard_adapters.conftest import events_of, last_refusals, phases_of, series_of

torch = pytest.importorskip("torch")

from gpubloom.traincard.adapters import Track  # noqa: E402

pytestmark = pytest.mark.xdist_group("frameworks")


class Loop:
    """A small regression with momentum: its state matters, so a wrong resume shows in the losses."""

    def __init__(self, accumulation: int = 1) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.0, total_iters=20)
        self.state = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}
        inputs = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
        data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
        self.loader = torch.utils.data.DataLoader(data, batch_size=4)
        self.accumulation = accumulation
        self.losses: list[tuple[int, float]] = []
        self.rates: list[float] = []
        self.norms: list[float] = []

    def track(self, reporter: Reporter, **options: Any) -> Track:
        return Track(
            reporter, self.loader, **{
                "epochs": 2, "optimizer": self.optimizer, "scheduler": self.scheduler, "state": self.state,
                "report_every": 1, **options,
            }
        )  # fmt: skip

    def train(self, track: Track, commands: dict[int, Any] | None = None) -> None:
        for _ in range(2):
            for number, (x, y) in enumerate(track):
                loss = torch.nn.functional.mse_loss(self.model(x), y)
                loss.backward()
                if (number + 1) % self.accumulation == 0:
                    self.rates.append(self.optimizer.param_groups[0]["lr"])
                    self.norms.append(float(torch.nn.utils.get_total_norm([
                        parameter.grad for parameter in self.model.parameters()
                    ])))  # fmt: skip
                    self.optimizer.step()
                    self.scheduler.step()
                    self.optimizer.zero_grad()
                track.report(loss=loss)
                self.losses.append((track.step, loss.item()))
                if command := (commands or {}).get(track.step):
                    command()
            if not track.stopped:
                with track.evaluating() as found:
                    found["loss"] = self.losses[-1][1]


def test_losses_rates_norms_and_evaluations_are_those_of_the_loop(run_dir: Path, reporter: Reporter) -> None:
    loop = Loop()
    loop.train(loop.track(reporter))
    reporter.flush()
    steps = range(1, 11)
    assert series_of(run_dir, "train/loss") == loop.losses
    assert series_of(run_dir, "train/learning_rate") == list(zip(steps, loop.rates, strict=True))
    norms = dict(series_of(run_dir, "train/grad_norm"))
    assert norms == pytest.approx(dict(zip(steps, loop.norms, strict=True)))
    assert series_of(run_dir, "eval/loss") == [(5, loop.losses[4][1]), (10, loop.losses[9][1])]
    samples, seconds = (
        dict(series_of(run_dir, f"train/{n}")) for n in ("samples_per_second", "step_seconds")
    )
    assert all(samples[step] * seconds[step] == pytest.approx(4) for step in steps)
    latest = load_latest(run_dir)
    assert latest is not None
    assert (latest["step"], latest["total_steps"], latest["epoch"], latest["epochs"]) == (10, 10, 2.0, 2)
    assert latest["status"] == "completed"
    assert latest["facts"] == {
        "model": "Linear", "parameters": 5, "trainable_parameters": 5, "global_batch_size": 4, "epochs": 2,
    }  # fmt: skip
    ran = load_what_ran(run_dir)
    assert ran["configs"]["optimizer"]["momentum"] == 0.9
    assert [(data["name"], data["rows"]) for data in ran["datasets"]] == [("train", 20)]
    assert phases_of(run_dir) == ["train", "eval", "train", "idle", "eval", "idle"]


def test_tokens_are_counted_and_a_loop_without_an_optimizer_says_how_many_batches_make_a_step(
    run_dir: Path, reporter: Reporter
) -> None:
    loader = [{"input_ids": torch.zeros(2, 8, dtype=torch.long)} for _ in range(6)]
    track = Track(reporter, loader, accumulation=2, report_every=1)
    assert [track.step for _ in track] == [1, 1, 2, 2, 3, 3]
    reporter.flush()
    tokens, seconds = (dict(series_of(run_dir, f"train/{n}")) for n in ("tokens_per_second", "step_seconds"))
    assert {step: tokens[step] * seconds[step] for step in tokens} == pytest.approx({1: 32, 2: 32, 3: 32})
    latest = load_latest(run_dir)
    assert latest is not None
    assert latest["total_steps"] == 3


def test_accumulated_gradients_are_one_step(run_dir: Path, reporter: Reporter) -> None:
    loop = Loop(accumulation=5)
    loop.train(loop.track(reporter))
    reporter.flush()
    assert [step for step, _ in series_of(run_dir, "train/loss")] == [1] * 5 + [2] * 5
    assert [step for step, _ in series_of(run_dir, "train/learning_rate")] == [1, 2]
    assert load_latest(run_dir)["total_steps"] == 2  # type: ignore[index]


def test_a_pause_saves_and_the_resumed_loop_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, run_dir: Path, reporter: Reporter
) -> None:
    whole = Loop()
    with Reporter(tmp_path / "whole", telemetry_seconds=0) as other:
        whole.train(whole.track(other))

    file = ControlFile(run_dir)
    first = Loop()
    track = first.track(reporter)
    first.train(track, {7: lambda: file.want("pause")})
    assert (track.stopped, len(first.losses)) == ("paused", 7)
    reporter.close()
    latest = load_latest(run_dir)
    assert latest is not None
    assert (latest["status"], latest["checkpoint"]["path"]) == ("paused", "checkpoints/step-00000007")

    file.want("run")
    second = Loop()
    with Reporter(run_dir, telemetry_seconds=0) as again:
        track = second.track(again)
        assert track.resume() == 7
        second.train(track)
    assert first.losses + second.losses == whole.losses
    assert first.rates + second.rates == whole.rates
    assert series_of(run_dir, "train/loss") == whole.losses
    assert [event.fields["from_step"] for event in events_of(run_dir, "resumed")] == [7]


def test_a_cancel_stops_without_saving(run_dir: Path, reporter: Reporter) -> None:
    loop = Loop()
    track = loop.track(reporter)
    loop.train(track, {3: lambda: ControlFile(run_dir).want("cancel")})
    assert (track.stopped, len(loop.losses)) == ("cancelled", 3)
    assert load_latest(run_dir)["status"] == "cancelled"  # type: ignore[index]
    assert not (run_dir / "checkpoints").exists()


def test_a_save_leaves_a_whole_checkpoint_and_training_goes_on(run_dir: Path, reporter: Reporter) -> None:
    loop = Loop()
    file = ControlFile(run_dir)
    loop.train(loop.track(reporter), {2: file.save, 4: lambda: file.set({"save_every_steps": 5})})
    reporter.flush()
    saved = [(event.step, event.fields["path"]) for event in events_of(run_dir, "checkpoint")]
    assert saved == [(step, f"checkpoints/step-{step:08d}") for step in (2, 5, 10)]
    assert sorted(path.name for path in (run_dir / "checkpoints").iterdir()) == [
        "step-00000002", "step-00000005", "step-00000010",
    ]  # fmt: skip
    assert len(loop.losses) == 10


def test_settings_change_the_optimizer_and_the_schedule_goes_on(run_dir: Path, reporter: Reporter) -> None:
    loop = Loop()
    clips: list[float] = []
    wanted = {"learning_rate": 0.05, "weight_decay": 0.2, "clip_norm": 1.5, "eval_every_steps": 3}
    track = loop.track(reporter, settings={"clip_norm": clips.append})
    loop.train(track, {4: lambda: ControlFile(run_dir).set(wanted)})
    reporter.flush()
    expected = [(0.1 if step < 4 else 0.05) * (20 - step) / 20 for step in range(10)]
    assert loop.rates == pytest.approx(expected)
    assert loop.optimizer.param_groups[0]["weight_decay"] == 0.2
    assert clips == [1.5]
    assert last_refusals(run_dir).keys() == {"eval_every_steps"}


def test_a_loop_that_cannot_save_says_so_and_pauses_all_the_same(run_dir: Path, reporter: Reporter) -> None:
    loop = Loop()
    track = loop.track(reporter, state=None)
    loop.train(track, {2: lambda: ControlFile(run_dir).want("pause")})
    assert track.stopped == "paused"
    assert "neither `state` nor `save`" in events_of(run_dir, "log")[-1].fields["line"]


@pytest.mark.parametrize(
    "make",
    [
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.4, total_steps=10),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=10),
        lambda o: torch.optim.lr_scheduler.StepLR(o, step_size=3),
        lambda o: torch.optim.lr_scheduler.SequentialLR(
            o,
            [
                torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=3),
                torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=7),
            ],
            [3],
        ),
    ],
    ids=["one cycle", "cosine", "step", "sequence"],
)
def test_every_kind_of_schedule_goes_on_from_the_new_rate(make: Any) -> None:
    from gpubloom.traincard.adapters.control_handler import set_learning_rate

    def rates(change_at: int | None) -> list[float]:
        weight = torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([weight], lr=0.2)
        scheduler = make(optimizer)
        top = 0.4 if "max_lr" in optimizer.param_groups[0] else 0.2
        found = []
        for step in range(9):
            if step == change_at:
                set_learning_rate(optimizer, [scheduler], top / 2)
            found.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            scheduler.step()
        return found

    plain, changed = rates(None), rates(4)
    assert changed[:4] == plain[:4]
    assert changed[4:] == pytest.approx([rate / 2 for rate in plain[4:]])


def test_an_exception_in_the_body_is_recorded(run_dir: Path) -> None:
    loop = Loop()

    def explode() -> None:
        raise FloatingPointError("loss is nan")

    with pytest.raises(FloatingPointError), Reporter(run_dir, telemetry_seconds=0) as reporter:
        loop.train(loop.track(reporter), {3: explode})
    latest = load_latest(run_dir)
    assert latest is not None
    assert (latest["status"], latest["error"]["type"], latest["step"]) == ("failed", "FloatingPointError", 3)


def test_a_reporter_gives_the_batches_itself(run_dir: Path) -> None:
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        assert list(reporter.track([1, 2, 3])) == [1, 2, 3]
    assert load_latest(run_dir)["step"] == 3  # type: ignore[index]

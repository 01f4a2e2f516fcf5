"""Scripts written for W&B."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

import gpubloom.traincard as wandb
from gpubloom.traincard import Reporter, load_latest, read_all


def points(run_dir: Path | str, name: str) -> list[tuple[int | None, float]]:
    return [
        (event.step, value) for event in read_all(run_dir) for found, value in event.series() if found == name
    ]


def test_a_script_that_only_changes_its_import_is_recorded(tmp_path: Path) -> None:
    run = wandb.init(project="shakespeare", name="first", config={"learning_rate": 1e-3}, dir=tmp_path)
    for step in range(3):
        wandb.log({"loss": 1 / (step + 1), "eval": {"loss": 2.0}})
    wandb.finish()
    assert Path(run.dir) == tmp_path / "shakespeare/first"
    assert points(run.dir, "train/loss") == [(0, 1.0), (1, 0.5), (2, 1 / 3)]
    assert points(run.dir, "eval/loss") == [(0, 2.0), (1, 2.0), (2, 2.0)]
    latest = load_latest(run.dir)
    assert latest is not None
    assert latest["status"] == "completed"
    assert latest["facts"] == {"project": "shakespeare", "name": "first", "learning_rate": 1e-3}


def test_steps_count_themselves_and_may_be_given_and_commit_gathers(tmp_path: Path) -> None:
    run = wandb.init(dir=tmp_path)
    run.log({"a": 1})
    run.log({"a": 2}, commit=False)
    run.log({"b": 3})
    run.log({"a": 4}, step=10)
    run.log({"a": 5})
    # A step that was there before is kept: W&B would drop it.
    run.log({"a": 6}, step=1)
    run.log({"a": 7}, commit=False)
    run.finish()
    assert points(run.dir, "train/a") == [(0, 1), (1, 2), (10, 4), (11, 5), (1, 6), (2, 7)]
    assert points(run.dir, "train/b") == [(1, 3)]


def test_config_and_summary_are_dictionaries_with_attributes(tmp_path: Path) -> None:
    run = wandb.init(dir=tmp_path, config={"layers": 2})
    wandb.config.update({"width": 16}, allow_val_change=True)
    wandb.config.depth = 3
    assert (wandb.config.layers, run.config["width"], dict(run.config)["depth"]) == (2, 16, 3)
    with pytest.raises(AttributeError):
        _ = wandb.config.missing
    wandb.log({"loss": 0.5})
    wandb.summary["best"] = 0.4
    assert (run.summary["loss"], run.summary.best) == (0.5, 0.4)
    run.finish()
    latest = load_latest(run.dir)
    assert latest is not None
    assert latest["facts"].items() >= {"layers": 2, "width": 16, "depth": 3, "summary/best": 0.4}.items()


def test_what_is_not_a_number_is_said_once_and_the_rest_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = wandb.init(dir=tmp_path, tags=["x"])
    wandb.define_metric("loss", step_metric="epoch")
    for _ in range(3):
        wandb.log({"image": object(), "loss": 1.0})
    run.finish()
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert sum("'image' is not recorded" in message for message in messages) == 1
    assert sum("define_metric is ignored" in message for message in messages) == 1
    assert sum("init ignores the arguments tags" in message for message in messages) == 1
    assert len(points(run.dir, "train/loss")) == 3


def test_a_run_is_resumed_by_name_and_goes_on_counting(tmp_path: Path) -> None:
    with wandb.init(name="first", dir=tmp_path) as run:
        run.log({"loss": 1.0})
        run.log({"loss": 0.9})
    with wandb.init(name="first", dir=tmp_path, resume="allow") as again:
        assert again.resumed
        again.log({"loss": 0.8})
    assert again.dir == run.dir
    assert points(run.dir, "train/loss") == [(0, 1.0), (1, 0.9), (2, 0.8)]
    assert {event.attempt for event in read_all(run.dir)} == {1, 2}
    with wandb.init(name="first", dir=tmp_path) as other:
        assert other.dir == f"{run.dir}-2"
    with pytest.raises(FileExistsError):
        wandb.init(name="first", dir=tmp_path, resume="never")
    with pytest.raises(FileNotFoundError):
        wandb.init(name="nobody", dir=tmp_path, resume="must")


def test_an_exception_ends_the_run_as_failed_and_so_does_an_exit_code(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), wandb.init(name="a", dir=tmp_path) as run:
        raise RuntimeError("no more")
    wandb.init(name="b", dir=tmp_path)
    wandb.finish(exit_code=1)
    for folder in (run.dir, tmp_path / "b"):
        assert load_latest(folder)["status"] == "failed"  # type: ignore[index]


def test_names_stay_inside_their_folder(tmp_path: Path) -> None:
    with wandb.init(project="../../team/x", name="/etc/passwd", dir=tmp_path / "in") as run:
        pass
    assert Path(run.dir).resolve().is_relative_to(tmp_path / "in")


def test_disabled_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with wandb.init(dir=tmp_path / "a", mode="disabled") as run:
        run.log({"loss": 1.0})
    monkeypatch.setenv("WANDB_MODE", "disabled")
    with wandb.init(dir=tmp_path / "b") as run:
        run.log({"loss": 1.0})
    assert list(tmp_path.iterdir()) == []
    assert Reporter(tmp_path / "c", telemetry_seconds=0).is_on


def test_logging_before_init_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match="Call init"):
        wandb.log({"loss": 1.0})
    wandb.finish()
    assert wandb.run is None


def test_importing_traincard_stays_with_the_standard_library() -> None:
    code = """
import sys
import gpubloom.traincard as wandb
assert "gpubloom.traincard.interop" not in sys.modules
wandb.init
import gpubloom.traincard.interop, gpubloom.traincard.adapters, gpubloom.traincard.mirror
heavy = {"torch", "numpy", "transformers", "lightning", "accelerate", "obstore", "tensorboard", "psutil"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_calls_that_have_no_counterpart_are_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert wandb.login(key="x")
    run = wandb.init(project="p", name="n", dir=tmp_path, mode="online")
    wandb.watch(object(), log="all")
    run.watch(object())
    wandb.save("*.pt")
    table = wandb.Table(columns=["a"])
    table.add_data(1)
    wandb.log({"loss": 1.0, "image": wandb.Image(object()), "table": table, "hist": wandb.Histogram([1])})
    weights = tmp_path / "model.pt"
    weights.write_bytes(b"weights")
    artifact = wandb.Artifact("model", type="model", metadata={"epoch": 3})
    artifact.add_file(str(weights))
    wandb.log_artifact(artifact)
    wandb.alert(title="Low accuracy", text="below 0.5", level="WARN")
    wandb.finish()
    events = list(read_all(run.dir))
    assert [e.fields["path"] for e in events if e.kind == "checkpoint"] == [str(weights)]
    alerts = [(e.fields["title"], e.fields["text"], e.fields["level"]) for e in events if e.kind == "alert"]
    assert alerts == [("Low accuracy", "below 0.5", "warning")]
    assert points(run.dir, "train/loss") == [(0, 1.0)]
    assert len([r for r in caplog.records if "watch is ignored" in r.message]) == 1

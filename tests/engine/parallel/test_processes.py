"""Several processes on one machine train as one would, apply commands together, and leave none behind."""

import os
import signal
from pathlib import Path

import pytest
from safetensors.torch import load_file

from gpubloom.traincard import ControlFile
from gpubloom.traincard.reader import load_latest
from tests.engine.parallel.rig import (
    finish,
    lives,
    ranks_of,
    started,
    train,
    wait_for_step,
    write_adapter_run,
    write_text_run,
)
from tests.engine.runs import read_events, read_losses
from tests.waiting import wait_until


@pytest.mark.long
def test_two_processes_train_adapters_as_one_does(tmp_path: Path, model: Path, examples: Path) -> None:
    alone = write_adapter_run(tmp_path / "alone", model, examples, batch_size=8)
    together = write_adapter_run(tmp_path / "together", model, examples, batch_size=4, processes=2)
    for run in (alone, together):
        train(run)
    expected, losses = read_losses(alone), read_losses(together)
    assert list(losses) == list(expected)
    assert len(losses) > 8
    assert list(losses.values()) == pytest.approx(list(expected.values()), rel=1e-5)
    ours, theirs = (load_file(run / "model" / "adapter_model.safetensors") for run in (together, alone))
    for name, tensor in theirs.items():
        assert ours[name].tolist() == [pytest.approx(row, abs=1e-4) for row in tensor.tolist()], name
    seen = [
        max(event["values"].get("tokens_seen", 0) for event in read_events(run, "metric"))
        for run in (alone, together)
    ]
    assert seen[0] == seen[1]


@pytest.mark.long
def test_a_pause_reaches_all_and_a_resume_goes_on_exactly(
    tmp_path: Path, model: Path, examples: Path
) -> None:
    straight, paused = (
        write_adapter_run(tmp_path / name, model, examples, batch_size=4, processes=2, epochs=8)
        for name in ("straight", "paused")
    )
    train(straight)
    with started([paused / "train.py"]) as process:
        wait_for_step(paused, 3, process)
        ControlFile(paused).want("pause")
        finish(process)
    assert not (paused / "model").exists()
    ControlFile(paused).want("run")
    train(paused, "--resume")
    assert read_losses(paused) == read_losses(straight)


@pytest.mark.long
def test_a_signal_to_the_first_process_saves_and_ends_all(tmp_path: Path, text: Path) -> None:
    run = write_text_run(tmp_path / "run", text, processes=2, epochs=5_000)
    with started([run / "train.py"]) as process:
        wait_for_step(run, 2, process)
        ranks = ranks_of(process)
        assert sorted(ranks) == [0, 1]
        process.send_signal(signal.SIGINT)
        finish(process)
    assert list((run / "checkpoints").glob("step-*"))
    assert not any(map(lives, ranks.values()))


@pytest.mark.long
def test_no_process_outlives_a_launcher_that_is_killed(tmp_path: Path, text: Path) -> None:
    run = write_text_run(tmp_path / "run", text, processes=2, epochs=5_000)
    with started([run / "train.py"]) as process:
        wait_for_step(run, 2, process)
        ranks = ranks_of(process)
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: not any(map(lives, ranks.values())))


@pytest.mark.long
def test_an_error_of_another_rank_ends_the_run_with_its_message(tmp_path: Path, text: Path) -> None:
    run = write_text_run(tmp_path / "run", text, processes=2)
    script = (run / "train.py").read_text(encoding="utf-8")
    failing = "if session.group.rank == 1:\n            raise OSError('no room at this node')\n        "
    (run / "train.py").write_text(script.replace("trainer.train()", f"{failing}trainer.train()"))
    with started([run / "train.py"]) as process:
        _, words = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "Rank 1 failed: OSError: no room at this node" in words
    assert "resumes" not in words, "it would only fail again"
    latest = load_latest(run)
    assert latest is not None
    assert latest["status"] == "failed"
    assert "no room at this node" in latest["error"]["message"]


@pytest.mark.long
def test_torchrun_leaves_a_completed_run_as_it_is(tmp_path: Path, text: Path) -> None:
    run = write_text_run(tmp_path / "run", text, max_steps=2)
    train(run)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    with started([*torchrun, run / "train.py"]) as process:
        _, words = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "is already complete" in words
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()} == before

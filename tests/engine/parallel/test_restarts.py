"""A run whose processes are killed goes on by itself, and ends as if nothing had happened."""

import os
import signal
from pathlib import Path

import pytest

from gpubloom.traincard.reader import load_latest
from tests.engine.parallel.rig import (
    SAVED_OFTEN,
    descendants,
    finish,
    ranks_of,
    started,
    wait_for_attempt,
    wait_for_checkpoint,
    write_text_run,
)
from tests.engine.runs import read_events, read_losses

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("restarts")]


@pytest.mark.parametrize("rank", [1, 0])
def test_a_killed_process_is_replaced_and_the_run_ends_with_the_same_losses(
    tmp_path: Path, text: Path, undisturbed: dict[int, float], rank: int
) -> None:
    run = write_text_run(tmp_path / "run", text, **SAVED_OFTEN)
    with started([run / "train.py"]) as process:
        wait_for_checkpoint(run, process)
        os.kill(ranks_of(process)[rank], signal.SIGKILL)
        words = finish(process)
    assert f"Rank {rank} was terminated by SIGKILL" in words
    assert "resumes from step-" in words
    # Repeated steps had the same losses, or reading them would have failed.
    assert read_losses(run) == undisturbed
    assert (run / "model").is_dir()
    latest = load_latest(run)
    assert latest is not None
    assert latest["status"] == "completed"
    assert any("was terminated by SIGKILL" in event["line"] for event in read_events(run, "log"))


def test_under_torchrun_a_killed_process_is_replaced_too(
    tmp_path: Path, text: Path, undisturbed: dict[int, float]
) -> None:
    run = write_text_run(tmp_path / "run", text, **{**SAVED_OFTEN, "processes": None})
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "3"]
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    with started([*torchrun, *rendezvous, run / "train.py"]) as process:
        wait_for_checkpoint(run, process)
        os.kill(ranks_of(process)[1], signal.SIGKILL)
        finish(process)
    assert read_losses(run) == undisturbed
    assert (run / "model").is_dir()


def test_a_run_that_never_gets_further_is_given_up(tmp_path: Path, text: Path) -> None:
    run = write_text_run(tmp_path / "run", text, processes=2, epochs=5_000, checkpoint={"every_epochs": 0})
    with started([run / "train.py"]) as process:
        for attempt in range(1, 5):
            wait_for_attempt(run, attempt, process)
            os.kill(ranks_of(process)[1], signal.SIGKILL)
        _, words = process.communicate(timeout=120)
        assert not descendants(process)
    assert process.returncode == 1
    assert "This happened 4 times without a newer checkpoint, so the run stops." in words
    assert words.count("restarts at step 0") == 3

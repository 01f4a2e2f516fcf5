"""Whole runs with TRL that take a while: as processes, in 4 bits, on running text, one example a row."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpubloom.plan import Hardware, plan, run_files
from gpubloom.traincard import load_latest, read_all
from tests.backends.conftest import MakeRun
from tests.backends.runs import Run

pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("frameworks"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


@pytest.mark.parametrize(
    ("method", "tolerance"),
    # Adapters begin with other random numbers: steps differ, the first loss does not.
    [("lora", 1e-5), ("qlora", 1e-4)],
)
def test_adapters_begin_with_the_loss_of_the_engine_and_learn(
    make_run: MakeRun, method: str, tolerance: float
) -> None:
    settings = {"method": method, "epochs": 12, "learning_rate": 1e-2}
    ours, theirs = make_run("engine", backend="engine", **settings), make_run("trl", **settings)
    assert ours.train() == theirs.train() == "completed"
    engine, trl = ours.series("train/loss"), theirs.series("train/loss")
    assert trl[1] == pytest.approx(engine[1], rel=tolerance)
    assert trl[36] < 0.7 * trl[1]
    assert trl[36] == pytest.approx(engine[36], rel=0.25)
    assert theirs.series("train/tokens_seen") == ours.series("train/tokens_seen")


@pytest.mark.parametrize("kind", ["text", "one example a row"])
def test_other_rows_have_the_losses_of_the_engine_too(
    make_run: MakeRun, tmp_path: Path, base: Path, kind: str
) -> None:
    (tmp_path / "text.txt").write_text("".join(f"{n} times it went and came back.\n" for n in range(200)))
    data = {
        "text": {"train_path": str(tmp_path / "text.txt")},
        "one example a row": {
            "kind": "examples",
            "train_path": str(base.parent / "examples.jsonl"),
            "packing": False,
            "eval_fraction": 0.2,
        },
    }[kind]
    ours = make_run("engine", backend="engine", data=data, epochs=1)
    theirs = make_run("trl", data=data, epochs=1)
    assert ours.train() == theirs.train() == "completed"
    for name in ("train/loss", "eval/loss"):
        assert theirs.series(name) == pytest.approx(ours.series(name), rel=1e-5), name
    assert theirs.series("train/tokens_seen") == ours.series("train/tokens_seen")


def test_samples_are_those_of_the_engine_and_leave_the_losses_alone(make_run: MakeRun, tuned: Run) -> None:
    eval_fields = {"prompts": ["What is 3?"], "sample_tokens": 8}
    run = make_run(method="lora", lora={"rank": 4, "dropout": 0.1}, eval=eval_fields)
    assert run.train() == "completed"
    found = [event for event in read_all(run.folder) if event.kind == "sample"]
    assert [event.step for event in found] == [0, 3, 6]
    assert run.series("train/loss") == tuned.series("train/loss")
    engine = make_run("engine", backend="engine", method="lora", lora={"rank": 4}, eval=eval_fields)
    engine.train()
    first = next(event for event in read_all(engine.folder) if event.kind == "sample")
    assert found[0].fields["text"] == first.fields["text"]


def test_the_script_of_a_run_trains_is_stopped_by_a_signal_and_continues(
    make_run: MakeRun, tuned: Run
) -> None:
    run = make_run(method="lora", lora={"rank": 4, "dropout": 0.1})
    run.folder.mkdir()
    expected = plan(run.config, Hardware(host_memory_bytes=64 << 30, cpu_cores=8))
    for name, text in run_files(run.config, expected, "0").items():
        (run.folder / name).write_text(text)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    first = subprocess.Popen([sys.executable, "train.py"], cwd=run.folder, env=environment)
    deadline = time.monotonic() + 150
    while ((load_latest(run.folder) or {}).get("step") or 0) < 1:
        assert first.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    first.send_signal(signal.SIGTERM)
    first.wait(150)
    if (load_latest(run.folder) or {})["status"] != "completed":
        assert (load_latest(run.folder) or {})["status"] == "preempted"
        subprocess.run([sys.executable, "train.py", "--resume"], cwd=run.folder, env=environment, check=True)
    assert run.weights() == tuned.weights()
    assert run.series("train/tokens_seen") == tuned.series("train/tokens_seen")

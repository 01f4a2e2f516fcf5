"""Programs that a reader of the documentation writes: nothing of a run is doubled, missing or misnamed."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gpubloom.traincard import read_all, snapshot

pytest.importorskip("torch")

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.xdist_group("frameworks")]

PROGRAMS = Path(__file__).parent / "programs"
EVERY, EVERY_SECOND, EPOCHS = range(1, 31), range(2, 31, 2), range(10, 31, 10)
# The loop's own speed and rate: at its first step and every ten steps.
MEASURED = (1, 10, 20, 30)

# The steps of every series that the program reports, and no others.
EXPECTED: dict[str, dict[str, Any]] = {
    "hugging_face": {
        "train/": dict.fromkeys(
            (
                "loss", "learning_rate", "grad_norm", "samples_per_second", "tokens_per_second",
                "step_seconds", "num_input_tokens_seen",
            ),
            EVERY_SECOND,
        ),
        "eval/": dict.fromkeys(("loss", "runtime", "samples_per_second", "steps_per_second"), EPOCHS),
    },
    "trl_sft": {
        "train/": dict.fromkeys(
            (
                "loss", "learning_rate", "grad_norm", "samples_per_second", "tokens_per_second",
                "step_seconds", "entropy", "num_tokens", "mean_token_accuracy",
            ),
            range(1, 13),
        ),
        "eval/": dict.fromkeys(
            (
                "loss", "runtime", "samples_per_second", "steps_per_second", "entropy", "num_tokens",
                "mean_token_accuracy",
            ),
            (6, 12),
        ),
    },
    "lightning_fit": {
        "train/": dict.fromkeys(
            ("loss", "learning_rate", "grad_norm", "samples_per_second", "step_seconds"), EVERY
        ),
        "eval/": {"loss": EPOCHS},
    },
    "accelerate_loop": {
        "train/": {
            "loss": EVERY,
            **dict.fromkeys(("learning_rate", "grad_norm", "samples_per_second", "step_seconds"), MEASURED),
        },
    },
    "plain_loop": {
        "train/": {
            "loss": EVERY,
            **dict.fromkeys(("learning_rate", "grad_norm", "samples_per_second", "step_seconds"), MEASURED),
        },
        "eval/": {"loss": EPOCHS},
    },
    "three_lines": {"train/": dict.fromkeys(("loss", "learning_rate", "acc"), range(30))},
}  # fmt: skip

CHECKPOINTS = {
    "hugging_face": [(10, True), (20, False), (30, False)],
    "trl_sft": [(6, False), (12, False)],
    "lightning_fit": [(10, True), (20, True), (30, False)],
    "accelerate_loop": [(10, False), (20, False), (30, False)],
    "plain_loop": [],
    "three_lines": [(29, False)],
}


def run(program: str, folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BLOOM_")}
    return subprocess.run(
        [sys.executable, str(PROGRAMS / f"{program}.py"), *arguments],
        cwd=folder,
        env={**environment, "HF_HUB_OFFLINE": "1", "METAFLOW_USER": "ada", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def steps_by_series(run_dir: Path, attempt: int = 1) -> dict[str, list[int | None]]:
    found: dict[str, list[int | None]] = {}
    for event in read_all(run_dir):
        if event.kind == "metric" and event.attempt == attempt:
            for name, _ in event.series():
                found.setdefault(name, []).append(event.step)
    return found


@pytest.mark.parametrize("program", EXPECTED)
def test_a_program_written_from_the_documentation_is_recorded_as_it_ran(tmp_path: Path, program: str) -> None:
    done = run(program, tmp_path)
    assert done.returncode == 0, done.stderr
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert f"runs/{run_dir.name}" in done.stderr
    expected = {
        prefix + name: list(steps)
        for prefix, series in EXPECTED[program].items()
        for name, steps in series.items()
    }
    assert steps_by_series(run_dir) == expected
    seen = snapshot(run_dir)
    status = seen["status"]
    assert (status["status"], status["restart_count"], len(seen["attempts"])) == ("completed", 0, 1)
    last = max(max(steps) for steps in expected.values())
    assert status["step"] == last
    if program != "three_lines":
        assert (status["total_steps"], status["global_batch_size"]) == (last, 4)
        assert status["epoch"] == status["epochs"]
        assert status["facts"]["parameters"] > 0
        assert seen["what_ran"]["configs"]
        assert seen["what_ran"]["datasets"]
    listed = seen["checkpoints"]["items"]
    assert [(item["step"], item["removed"]) for item in listed] == CHECKPOINTS[program]
    assert all((tmp_path / item["path"]).exists() for item in listed if not item["removed"])
    groups = {metric["name"]: metric["group"] for metric in seen["metrics"]}
    assert groups["train/loss"] == "loss"
    assert groups.get("train/acc", "accuracy") == "accuracy"
    # What was printed is there once; a finished bar too, and no state before it.
    counted = Counter(line["line"] for line in seen["logs"]["lines"])
    assert [line for line in counted if "%|" in line and "100%|" not in line] == []
    if program == "plain_loop":
        lines = {f"{what} {epoch}": 1 for epoch in range(3) for what in ("epoch", "logged")}
        assert counted == lines


def test_a_flow_with_a_failing_and_a_retried_task_keeps_the_whole_story(tmp_path: Path) -> None:
    pytest.importorskip("metaflow")
    assert run("metaflow_steps", tmp_path, "run").returncode != 0
    assert run("metaflow_steps", tmp_path, "resume", MENDED="1").returncode == 0
    runs = {path.parents[1] for path in tmp_path.rglob("traincard/latest.json")}
    found: dict[tuple[str, tuple[str, ...]], Path] = {}
    for run_dir in runs:
        statuses = tuple(attempt["status"] for attempt in snapshot(run_dir)["attempts"])
        found[run_dir.parent.name, statuses] = run_dir
    assert sorted(found) == [
        ("fails", ("failed",)),
        ("fails", ("failed", "completed")),
        ("train", ("completed",)),
        ("train", ("failed", "completed")),
    ]
    fine, retried = found["train", ("completed",)], found["train", ("failed", "completed")]
    assert steps_by_series(fine) == {"train/loss": list(range(10))}
    assert steps_by_series(retried, 1) == {"train/loss": list(range(7))}
    assert steps_by_series(retried, 2) == {"train/loss": list(range(5, 10))}
    seen = snapshot(retried)
    assert (seen["status"]["restart_count"], seen["status"]["resumed_from_step"]) == (1, 5)
    assert seen["attempts"][0]["error"]["type"] == "ValueError"
    printed = [line["line"] for line in seen["logs"]["lines"]]
    assert printed == [f"printed retried {number}" for number in (*range(7), *range(5, 10))]
    failure = snapshot(found["fails", ("failed",)])["failure"]
    assert (failure["type"], failure["cause"]) == ("RuntimeError", "device_side_assert")
    mended = found["fails", ("failed", "completed")]
    assert steps_by_series(mended, 1) == steps_by_series(mended, 2) == {"train/loss": [0, 1, 2, 3]}
    assert snapshot(mended)["failure"] is None

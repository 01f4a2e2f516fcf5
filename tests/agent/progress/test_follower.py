"""Scripts that know nothing of us, run by a real agent: their progress is in the run directory."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpubloom.traincard import Reading, load_latest, read_all
from gpubloom.traincard.interop.event_files import Scalars, write_scalars, write_version
from tests.agent.runs import TIMEOUT_SECONDS, Run, wait_until

NANOGPT = """
import sys, time
first, last = int(sys.argv[1]), int(sys.argv[2])
print("Overriding: max_iters = 40")
print("tokens per iteration will be: 256")
print("number of parameters: 0.10M")
for step in range(first, last + 1):
    if step % 20 == 0:
        print(f"step {step}: train loss {4 - step / 20:.4f}, val loss {4.1 - step / 20:.4f}")
        print("saving checkpoint to out-shakespeare-char")
    print(f"iter {step}: loss {4 - step / 20:.4f}, time 2039.24ms, mfu -100.00%")
    time.sleep(0.02)
"""


def events_of(run: Run, kind: str) -> list[dict[str, object]]:
    return [dict(event.fields) for event in read_all(run.path) if event.kind == kind]


def losses(run: Run, name: str = "train/loss") -> list[tuple[int | None, float]]:
    return [
        (event.step, event.fields["values"][name])
        for event in read_all(run.path)
        if event.kind == "metric" and name in event.fields["values"]
    ]


def run_nanogpt(run: Run, attempt: int, first: int, last: int) -> None:
    run.script(NANOGPT)
    run.spec = run.attempt(attempt)
    run.spec = type(run.spec)(
        run.spec.job_id, run.path, attempt, (sys.executable, "-S", "train.py", str(first), str(last))
    )
    assert run.run_agent().code == 0


def test_a_script_that_prints_like_nano_gpt_has_steps_losses_and_a_total(run: Run) -> None:
    run_nanogpt(run, 1, 0, 40)
    latest = load_latest(run.path)
    assert latest is not None
    assert (latest["status"], latest["step"], latest["total_steps"]) == ("completed", 40, 40)
    assert latest["values"]["train/loss"] == {"step": 40, "value": 2.0}
    assert latest["values"]["eval/loss"] == {"step": 40, "value": 2.1}
    assert latest["values"]["train/step_seconds"]["value"] == pytest.approx(2.03924)
    assert "train/mfu" not in latest["values"]
    assert latest["facts"]["tokens_per_step"] == 256
    assert losses(run) == [(step, pytest.approx(4 - step / 20)) for step in range(41)]


def test_a_script_that_prints_no_total_has_the_one_that_was_expected(run: Run) -> None:
    run.script("for step in range(1, 21):\n    print(f'iter {step}: loss {1 / step:.4f}')\n")
    run.spec = replace(run.spec, total_steps=30)
    assert run.run_agent().code == 0
    latest = load_latest(run.path)
    assert latest is not None
    assert (latest["step"], latest["total_steps"]) == (20, 30)


def test_steps_that_a_resumed_script_repeats_are_kept_by_attempt(run: Run) -> None:
    run_nanogpt(run, 1, 0, 20)
    run_nanogpt(run, 2, 20, 40)
    reading = Reading(run.path)
    reading.update()
    assert [
        (a.attempt, a.first_step, a.last_step, a.resumed_from_step) for a in reading.attempts.values()
    ] == [
        (1, 0, 20, None),
        (2, 20, 40, 20),
    ]
    assert (reading.state.step, reading.state.total_steps, reading.status) == (40, 40, "completed")


def test_the_time_left_shows_while_it_runs(run: Run) -> None:
    run.script(
        "import sys, time\n"
        "for step in range(1, 1000):\n"
        "    bar = f'{step // 10}%|#| {step}/1000 [00:01<00:09, 10.0it/s, loss={1 / step:.4f}]'\n"
        "    sys.stderr.write('\\r' + bar)\n"
        "    sys.stderr.flush()\n"
        "    time.sleep(0.05)\n"
    )
    with run.start_agent() as agent:
        wait_until(
            lambda: bool((load_latest(run.path) or {}).get("eta_seconds")),
            "the time left of a script that prints",
        )
        latest = load_latest(run.path)
        reading = Reading(run.path)
        reading.update()
        assert reading.status == "running"
        assert reading.ranks[0].life(reading.now()) == "alive"
        agent.terminate()
        assert agent.wait(TIMEOUT_SECONDS) == 0
    assert latest is not None
    assert latest["total_steps"] == 1000
    assert 0 < latest["step"] < 1000
    assert 0 < latest["eta_seconds"] < 3600
    ended = load_latest(run.path)
    assert ended is not None
    assert ended["status"] == "preempted"


def test_a_script_that_fails_says_why(run: Run) -> None:
    run.script(
        "print('step 1 loss 0.5')\nraise RuntimeError('CUDA out of memory. Tried to allocate 2 GiB')\n"
    )
    assert run.run_agent().code == 1
    latest = load_latest(run.path)
    assert latest is not None
    assert latest["status"] == "failed"
    assert latest["error"]["type"] == "RuntimeError"
    assert latest["error"]["cause"] == "gpu_out_of_memory"
    assert "smaller batch" in latest["error"]["advice"]


def test_a_script_without_progress_leaves_nothing_behind(run: Run) -> None:
    run.script("print('hello'); print('12 apples')")
    run.run_agent()
    assert not (run.path / "traincard").exists()


@pytest.mark.parametrize("where", ["train.py", "trainlib.py"])
def test_a_script_with_a_reporter_of_its_own_is_left_alone(run: Run, where: str) -> None:
    report = (
        "from gpubloom.traincard import Reporter\n"
        "def train():\n"
        "    with Reporter(telemetry_seconds=0) as reporter:\n"
        "        for step in range(5):\n"
        "            print(f'step {step} loss 99.0')\n"
        "            reporter.metric('loss', float(step), step=step)\n"
    )
    if where == "train.py":
        run.script(f"{report}train()\n")
    else:
        (run.path / where).write_text(report)
        run.script("print('step 0 loss 99.0')\nimport trainlib\ntrainlib.train()\n")
    run.spec = type(run.spec)(run.spec.job_id, run.path, 1, (sys.executable, "train.py"))
    assert run.run_agent().code == 0
    assert losses(run, "loss") == [(step, float(step)) for step in range(5)]
    assert losses(run) == []
    assert [event["status"] for event in events_of(run, "end")] == ["completed"]


@pytest.mark.long
def test_a_reporter_that_begins_late_and_unseen_takes_over(run: Run) -> None:
    # Nothing in its source says so: the module is named at run time.
    run.script(
        "import importlib, time\n"
        "for step in range(1, 40):\n"
        "    print(f'step {step} loss 9.0', flush=True)\n"
        "def followed():\n"
        "    try:\n"
        "        return open('traincard/events.jsonl').read().count('loss')\n"
        "    except OSError:\n"
        "        return 0\n"
        "while followed() < 6: time.sleep(0.05)\n"
        "Reporter = importlib.import_module('gpubloom.traincard').Reporter\n"
        "with Reporter(telemetry_seconds=0) as reporter:\n"
        "    assert reporter.is_on\n"
        "    for step in range(40, 45):\n"
        "        print(f'step {step} loss 9.0', flush=True)\n"
        "        reporter.metric('loss', 1.0, step=step)\n"
        "        time.sleep(0.3)\n"
    )
    run.spec = type(run.spec)(run.spec.job_id, run.path, 1, (sys.executable, "train.py"))
    end = run.run_agent()
    assert end.code == 0, run.output()
    assert losses(run, "loss") == [(step, 1.0) for step in range(40, 45)]
    assert {step for step, _ in losses(run)} <= set(range(1, 41))
    assert len(losses(run)) > 5
    assert [event["status"] for event in events_of(run, "end")] == ["completed"]
    sequence = [event.seq for event in read_all(run.path)]
    assert sorted(sequence) == sequence


def test_following_can_be_turned_off(run: Run) -> None:
    run.script("print('step 1 loss 0.5')")
    run.spec = type(run.spec)(
        run.spec.job_id, run.path, 1, run.spec.command, environment={"BLOOM_TRAINCARD": "off"}
    )
    run.run_agent()
    assert not (run.path / "traincard").exists()


def test_a_flood_of_output_is_kept_and_does_not_hold_the_script_up(run: Run) -> None:
    run.script(
        "import sys\n"
        "for step in range(200_000):\n"
        "    sys.stdout.write(f'step {step}/200000 loss {1 / (step + 1):.6f} and words of no use\\n')\n"
    )
    assert run.run_agent().code == 0
    assert run.output().count("\n") >= 200_000
    latest = load_latest(run.path)
    assert latest is not None
    assert (latest["status"], latest["step"], latest["total_steps"]) == ("completed", 199_999, 200_000)


def test_scalars_of_the_scripts_own_tensorboard_files_are_taken(run: Run, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    with whole.open("wb") as file:
        write_version(file, 1.0)
        for step in range(1, 6):
            write_scalars(file, Scalars(1.0, step, {"Loss/train": 1.0 / step, "lr": 0.25, "epoch": 1.0}))
    run.script(
        "import os, time\n"
        "os.makedirs('runs/exp1')\n"
        f"data = open({str(whole)!r}, 'rb').read()\n"
        "file = open('runs/exp1/events.out.tfevents.1.host', 'wb')\n"
        "for at in range(0, len(data), 40):\n"
        "    file.write(data[at:at + 40]); file.flush(); time.sleep(0.01)\n"
    )
    assert run.run_agent().code == 0
    assert losses(run) == [(step, pytest.approx(1.0 / step)) for step in range(1, 6)]
    latest = load_latest(run.path)
    assert latest is not None
    assert latest["values"]["train/learning_rate"]["value"] == 0.25
    assert "train/epoch" not in latest["values"]


def test_a_run_directory_that_is_deleted_does_not_come_back(run: Run) -> None:
    run.script(
        "import shutil, os, time\n"
        "for step in range(3):\n"
        "    print(f'step {step} loss 0.5', flush=True); time.sleep(0.3)\n"
        "here = os.getcwd()\n"
        "shutil.rmtree(here)\n"
        "for step in range(3, 30):\n"
        "    print(f'step {step} loss 0.5', flush=True); time.sleep(0.1)\n"
    )
    with run.start_agent() as agent:
        assert agent.wait(TIMEOUT_SECONDS) != 0
    assert not run.path.exists()

"""The events of a run as lines: which of them get one, and what a process prints."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from gpubloom.traincard.lines import RunLines, rows_used


class _Clock:
    """Feeds events to RunLines at moments that the test chooses."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.lines = RunLines()

    def say(self, kind: str, step: int | None = None, **fields: Any) -> list[str]:
        return list(self.lines.render(kind, self.now, step, fields))

    def train(self, steps: range, seconds: float) -> list[str]:
        found = []
        for step in steps:
            self.now += seconds
            found += self.say(
                "metric", step, values={"loss": 1 / step, "lr": 2e-4, "tokens_per_second": 12_345.0}
            )
        return found


def test_the_first_and_the_last_step_have_a_line_with_loss_rate_and_speed() -> None:
    run = _Clock()
    assert run.say("describe", facts={"total_steps": 480, "global_batch_size": 8, "method": "lora"}) == [
        "training starts: 480 steps of 8 rows, lora"
    ]
    shown = run.train(range(1, 481), seconds=0.001)
    assert shown == [
        "step 1/480  loss 1.0000  lr 2.0e-04  12.3k tok/s",
        "step 480/480  loss 0.0021  lr 2.0e-04  12.3k tok/s",
    ]


def test_fast_steps_have_lines_at_round_numbers_and_slow_ones_every_ten_seconds() -> None:
    fast, slow = _Clock(), _Clock()
    for run in (fast, slow):
        run.say("describe", facts={"total_steps": 10_000})
    lines = fast.train(range(1, 501), seconds=0.02)
    assert [line.split()[1] for line in lines] == [
        "1/10,000",
        *(f"{step}/10,000" for step in range(100, 501, 100)),
    ]
    assert len(slow.train(range(1, 21), seconds=12)) == 20


def test_lines_of_steps_say_how_long_the_run_still_takes() -> None:
    run = _Clock()
    run.say("describe", facts={"total_steps": 100})
    lines = run.train(range(1, 6), seconds=60)
    assert "left" not in lines[0]
    assert [line.rpartition("tok/s")[2] for line in lines[1:]] == [
        "  1 h 38 min left",
        "  1 h 37 min left",
        "  1 h 36 min left",
        "  1 h 35 min left",
    ]
    # After a pause the time before it says nothing about the speed.
    run.now += 86_400
    run.say("resumed", from_step=5)
    assert "left" not in run.train(range(6, 7), seconds=60)[0]
    assert run.train(range(7, 8), seconds=30)[0].endswith("  46 min 30 s left")
    assert "left" not in run.train(range(100, 101), seconds=30)[0]


def test_a_finding_of_the_log_says_what_to_do_and_a_malformed_one_is_a_plain_line() -> None:
    run = _Clock()
    advice = {"kind": "few_steps", "severity": "warning", "next_step": "Use more epochs."}
    assert run.say("log", line="Few steps.", level="warning", finding=advice) == [
        "warning: Few steps. Use more epochs."
    ]
    assert run.say("log", line="Two.", level="warning", finding={**advice, "severity": "info"}) == [
        "note: Two. Use more epochs."
    ]
    for malformed in ("few_steps", {"severity": ["warning"]}, {"severity": None}, [1]):
        assert run.say("log", line="Few steps.", level="warning", finding=malformed) == [
            "warning: Few steps."
        ]


def test_a_resumed_run_has_a_line_for_its_first_step() -> None:
    run = _Clock()
    run.say("describe", facts={"total_steps": 1_000})
    run.train(range(1, 50), seconds=0.001)
    assert run.say("resumed", from_step=40) == ["resumed from step 40"]
    assert [line.split()[1] for line in run.train(range(41, 50), seconds=0.001)] == ["41/1,000"]


def test_logs_carry_their_level_and_evaluations_saves_and_ends_have_lines() -> None:
    run = _Clock()
    assert run.say("log", line="template replaced", level="warning") == ["warning: template replaced"]
    assert run.say("log", line="no room", level="error") == ["error: no room"]
    assert run.say("log", line="8 processes", level="info") == ["8 processes"]
    assert run.say("describe", facts={"rows_used": 20, "rows_total": 120}) == ["data: 20 of 120 rows used"]
    run.train(range(1, 4), seconds=1)
    assert run.say("metric", 3, values={"eval_loss": 1.25, "eval_perplexity": "Infinity"}) == [
        "evaluation at step 3  loss 1.25  perplexity inf"
    ]
    assert run.say("checkpoint", 3, path="/runs/x/checkpoints/step-00000003", size=12_300_000, best=True) == [
        "saved checkpoint step-00000003 (12.3 MB, best so far)"
    ]
    assert run.say("end", status="preempted", message="SIGTERM") == ["SIGTERM received: stopping"]
    assert run.say("end", status="preempted") == ["preempted at step 3, 20 of 120 rows used"]
    assert run.say("end", status="preempted") == []


def test_a_run_that_was_refused_before_its_first_step_leaves_the_last_word_to_the_refusal() -> None:
    assert _Clock().say("end", status="failed", message="ValueError: no data") == []


def test_rows_are_counted_only_where_somebody_counted_them() -> None:
    assert rows_used({}) is None
    assert rows_used({"rows_used": 120, "rows_total": 120}, only_if_fewer=True) is None
    assert rows_used({"rows_used": "many", "rows_total": 120}) is None
    assert rows_used({"rows_used": 1_200, "rows_total": 12_000}) == "1,200 of 12,000 rows used"


def test_a_process_prints_its_log_and_goes_on_when_nobody_reads_it(tmp_path: Path) -> None:
    script = """
import os, sys
from gpubloom.traincard.lines import PrintingReporter
with PrintingReporter(sys.argv[1], telemetry_seconds=0) as reporter:
    reporter.log("100 of 120 rows cannot be used …", level="warning")
    if os.fork() == 0:
        reporter.log("a child says nothing")
        os._exit(0)
    os.wait()
    os.close(1)
    reporter.log("nobody hears this")
    reporter.metrics({"loss": 1.0}, 1)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "run")], capture_output=True, timeout=60, check=True
    )
    assert done.stdout.decode() == "warning: 100 of 120 rows cannot be used …\n"

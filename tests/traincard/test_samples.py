"""Samples in the run directory: bounded, thinned over steps, repeated steps replaced, in the card's data."""

from itertools import pairwise
from pathlib import Path

from typer.testing import CliRunner

from gpubloom.cli.app import app
from gpubloom.traincard import Reporter
from gpubloom.traincard.samples import Samples, load_samples
from gpubloom.traincard.snapshot import snapshot


def test_many_steps_are_thinned_and_the_first_and_last_stay() -> None:
    samples = Samples()
    for step in range(0, 2_000, 10):
        samples.add({"prompt": "a", "text": str(step), "step": step})
    (found,) = samples.as_list()
    steps = [answer["step"] for answer in found["answers"]]
    assert len(steps) == 40
    assert (steps[0], steps[-1]) == (0, 1_990)
    gaps = [after - before for before, after in pairwise(steps)]
    assert max(gaps) <= 200


def test_texts_and_prompts_are_cut_and_a_second_attempt_replaces_its_steps(tmp_path: Path) -> None:
    with Reporter(tmp_path, telemetry_seconds=0) as reporter:
        reporter.sample("p" * 5_000, "x" * 50_000, 0)
        reporter.sample("kept", "first", 5)
    with Reporter(tmp_path, telemetry_seconds=0) as reporter:
        reporter.sample("kept", "second", 5)
    long, kept = load_samples(tmp_path)
    assert len(long["prompt"]) < 2_100
    assert len(long["answers"][0]["text"]) < 4_200
    assert kept["answers"] == [{"step": 5, "text": "second"}]
    assert snapshot(tmp_path)["samples"] == [long, kept]


def test_no_more_prompts_are_kept_than_a_page_can_show() -> None:
    samples = Samples()
    for number in range(100):
        samples.add({"prompt": str(number), "text": "", "step": 1})
    assert [each["prompt"] for each in samples.as_list()] == [str(number) for number in range(16)]


def test_the_command_prints_samples_step_by_step(tmp_path: Path) -> None:
    with Reporter(tmp_path, telemetry_seconds=0) as reporter:
        reporter.sample("Where?", "Nowhere.", 0)
        reporter.sample("Where?", "Under\nthe stone.", 1_200)
    printed = CliRunner().invoke(app, ["runs", "samples", str(tmp_path)])
    assert printed.exit_code == 0
    assert printed.stdout.splitlines() == [
        "Prompt: Where?",
        "    step 0  Nowhere.",
        "step 1,200  Under",
        "            the stone.",
    ]

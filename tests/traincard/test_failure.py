"""Likely causes: what programs that fail left behind, here and on a machine with a GPU (`failures/`)."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from gpubloom.agent.spec import ExitRecord
from gpubloom.traincard.failure import (
    CAUSES,
    Evidence,
    cause_fields,
    cause_of_signal,
    error_fields,
    evidence_of_text,
    likely_cause,
)
from tests.traincard.failures.programs import CPU, GPU

CORPUS = [
    json.loads(line)
    for line in (Path(__file__).parent / "failures" / "corpus.jsonl").read_text("utf-8").splitlines()
]
EXPECTED = {name: cause for name, (cause, _) in (CPU | GPU).items()}
# The check that fails says nothing; the loss that was reported before it does.
LOSS_WAS_NAN = {"own_assertion_of_loss"}


def evidence(row: dict[str, Any]) -> list[Evidence]:
    return [Evidence(tuple(each["types"]), each["message"], each["errno"]) for each in row["exceptions"]]


def test_every_program_left_something_and_nothing_is_left_of_no_program() -> None:
    assert {row["name"] for row in CORPUS} == set(EXPECTED)
    assert len(CORPUS) >= 60
    assert {row["machine"] for row in CORPUS} == {"cpu", "h200"}


@pytest.mark.parametrize("row", CORPUS, ids=lambda row: row["name"])
def test_the_cause_is_the_one_that_the_program_has(row: dict[str, Any]) -> None:
    if row["signal"] is not None:
        cause = cause_of_signal(row["signal"])
    else:
        cause = likely_cause(evidence(row), loss_is_finite=row["name"] not in LOSS_WAS_NAN)
    assert (cause and cause.code) == EXPECTED[row["name"]]


@pytest.mark.parametrize("row", [row for row in CORPUS if row["exceptions"]], ids=lambda row: row["name"])
def test_the_last_line_of_a_printed_traceback_leads_to_the_same_cause(row: dict[str, Any]) -> None:
    """Of a script without a Reporter the agent sees only what was printed: the outermost exception."""
    outer = evidence(row)[0]
    read = likely_cause([evidence_of_text(outer.types[0], outer.message)])
    whole = likely_cause([outer])
    # A name does not say what it derives from: those causes stay unknown, none becomes another one.
    assert read in {None, whole}


def test_a_word_of_a_sentence_is_no_evidence() -> None:
    for message in (
        "nccl",
        "gloo",
        "process group",
        "rendezvous",
        "killed",
        "nan",
        "no space left on device",
        "oom",
    ):
        assert likely_cause([Evidence(("ValueError",), f"the column {message} is unknown")]) is None


def test_advice_begins_with_the_figures_of_the_allocation() -> None:
    row = next(row for row in CORPUS if row["name"] == "gpu_memory_grows")
    advice = cause_fields(evidence(row))["advice"]
    assert advice.startswith("It asked for 4.00 GiB while ")
    assert " of 139.80 GiB were free. " in advice
    row = next(row for row in CORPUS if row["name"] == "numpy_allocation")
    assert cause_fields(evidence(row))["advice"].startswith("It asked for 8.00 PiB at once. ")


def test_an_exception_that_was_turned_into_another_still_tells() -> None:
    full = OSError(28, "No space left on device")
    told, hidden = RuntimeError("the checkpoint was not saved"), ValueError("another matter")
    told.__cause__ = full
    hidden.__context__, hidden.__suppress_context__ = full, True
    assert error_fields(told)["cause"] == "disk_full"
    assert "cause" not in error_fields(hidden)


def test_a_killed_process_ran_out_of_memory_only_if_the_kernel_says_so() -> None:
    known = ExitRecord(1, None, signal.SIGKILL, "ended", 1.0, 2.0, 0, oom_kills=1)
    assert CAUSES["host_out_of_memory"].title in known.sentence
    for kills in (0, None):
        unknown = ExitRecord(1, None, signal.SIGKILL, "ended", 1.0, 2.0, 0, oom_kills=kills)
        assert CAUSES["killed"].title in unknown.sentence
    assert ExitRecord.from_json(json.loads(known.to_json())) == known

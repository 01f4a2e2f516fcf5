"""What `@traincard` does for a step: its card while it runs, when it fails, when it is tried again."""

from pathlib import Path

import pytest

from tests.metaflow.conftest import Flow

pytestmark = pytest.mark.xdist_group("metaflow")


@pytest.mark.long
def test_a_finished_step_has_a_card_and_no_process_was_started_to_update_it(tmp_path: Path) -> None:
    flow = Flow("training", tmp_path)
    flow.run("run", "--seconds", "5")
    (card,) = flow.cards()
    assert card.token == "final"
    assert card.page_data["status"]["status"] == "completed"
    assert card.page_data["status"]["global_batch_size"] == 32
    assert {metric["name"] for metric in card.page_data["metrics"]} == {"train/loss", "train/learning_rate"}
    assert card.page_data["system"]["series"]
    # The run, its two tasks, and Metaflow's last page and data of both cards of the step: nothing in between.
    assert len(flow.imports.read_text().splitlines()) == 3 + 4
    assert len(list(tmp_path.glob(".metaflow/TrainingFlow/*/start/*/traincard/events.jsonl"))) == 1


@pytest.mark.long
def test_a_failed_step_shows_exception_trace_last_metrics_and_likely_cause(tmp_path: Path) -> None:
    flow = Flow("training", tmp_path)
    flow.run("run", "--fail", "always", fails=True)
    cards = flow.cards()
    assert len(cards) == 2
    # Metaflow renders no page for a failed task, so both page and data must have been written by the step.
    for shown in (cards[-1].page_data, cards[-1].data):
        assert shown["status"]["status"] == "failed"
        failure = shown["failure"]
        assert failure["type"] == "MemoryError"
        assert "cannot allocate memory for the batch" in failure["traceback"]
        assert failure["cause"] == "host_out_of_memory"
        assert failure["last_metrics"]["train/loss"]["step"] >= 29
        assert "one more batch" in shown["logs"]["lines"][-1]["line"]
    # The viewer takes in data only while its token is the page's.
    assert cards[-1].token == "never"
    assert 'data-reload-token="never"' in cards[-1].page


@pytest.mark.long
def test_a_retried_step_shows_one_timeline_with_the_restart_marked_on_each_of_its_cards(
    tmp_path: Path,
) -> None:
    flow = Flow("training", tmp_path)
    flow.run("run", "--fail", "once")
    cards = flow.cards()
    assert len(cards) == 2
    for card in cards:
        shown = card.page_data
        assert shown["status"]["status"] == "completed"
        assert shown["status"]["restart_count"] == 1
        (restart,) = shown["discontinuities"]
        assert (restart["attempt"], restart["step"]) == (2, 20)
        assert "MemoryError" in restart["reason"]
        loss = next(metric for metric in shown["metrics"] if metric["name"] == "train/loss")
        assert [line["attempt"] for line in loss["lines"]] == [1, 2]
        # Steps that were done twice are there twice.
        assert loss["lines"][0]["x"][-1] >= 29
        assert loss["lines"][1]["x"][0] == 20


@pytest.mark.long
def test_a_resumed_run_continues_the_story_of_its_origin(tmp_path: Path) -> None:
    flow = Flow("training", tmp_path)
    flow.run("run", "--fail", "always", fails=True)
    flow.environment["HEALED"] = "yes"
    flow.run("resume")
    data = max((card.data for card in flow.cards()), key=lambda data: str(data["name"]))
    assert data["status"]["status"] == "completed"
    assert data["status"]["restart_count"] == 2
    assert [attempt["status"] for attempt in data["attempts"]] == ["failed", "failed", "completed"]
    assert [attempt["error"]["type"] for attempt in data["attempts"][:2]] == ["MemoryError", "MemoryError"]
    assert [mark["attempt"] for mark in data["discontinuities"]] == [2, 3]
    (loss,) = [metric for metric in data["metrics"] if metric["name"] == "train/loss"]
    assert [line["attempt"] for line in loss["lines"]] == [1, 2, 3]
    assert [line["x"][0] for line in loss["lines"]] == [0, 20, 0]


def test_the_code_package_holds_all_that_a_remote_step_needs(tmp_path: Path) -> None:
    listed = Flow("training", tmp_path).run("package", "list")
    for part in (
        "gpubloom/__init__.py",
        "gpubloom/traincard/reporter.py",
        "gpubloom/traincard/adapters/hugging_face.py",
        "gpubloom/traincard/card/static/card.js",
        "metaflow_traincard/__init__.py",
        "metaflow_extensions/gpubloom/plugins/traincard_decorator.py",
        "metaflow_extensions/gpubloom/plugins/cards/train/__init__.py",
    ):
        assert part in listed
    assert "gpubloom/server" not in listed

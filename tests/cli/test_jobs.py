"""`bloom jobs list`: id, status and name of each job, and its progress below."""

import io
from typing import Any

import pytest
from rich.console import Console

from gpubloom.cli.jobs import _figures, _list_item, _print_job, _show_start


def _job(**changes: Any) -> dict[str, Any]:
    job = dict.fromkeys(("step", "total_steps", "loss", "cost_so_far", "provider", "rows_used", "rows_total"))
    return {**job, "id": "1", "status": "failed", "name": "n", **changes}


def _shown(job: dict[str, Any]) -> str:
    output = io.StringIO()
    _print_job(job, Console(file=output, width=80, markup=False, highlight=False))
    return output.getvalue()


@pytest.mark.parametrize(
    ("stored", "shown"), [("NaN", "NaN"), ("Infinity", "Infinity"), (1.5, "1.5"), (2.594e-12, "2.59e-12")]
)
def test_a_job_whose_loss_is_no_number_is_listed(stored: object, shown: str) -> None:
    assert f"loss {shown}" in _shown(_job(loss=stored))


def test_a_job_is_listed_with_the_provider_whose_offer_was_taken_and_its_cost() -> None:
    assert "modal $1.50" in _shown(_job(provider="modal", cost_so_far=1.5))
    assert "local" in _shown(_job())


def test_a_name_with_brackets_is_shown_as_it_is() -> None:
    assert "[bold]run[/bold]" in _shown(_job(name="[bold]run[/bold]"))


def test_one_job_is_shown_as_in_the_list() -> None:
    summary = {"step": 3, "total_steps": 9, "values": {"train/loss": {"value": 2.0}}, "cost": {"so_far": 0.5}}
    shown = _shown(_list_item({**_job(), "summary": summary, "offer": {"provider": "modal"}}))
    assert all(word in shown for word in ("step 3 of 9", "loss 2 ", "modal $0.50"))


def test_one_job_shows_its_speed_global_batch_and_processes() -> None:
    values = {
        "train/tokens_per_second": {"value": 12_345.0},
        "train/samples_per_second": {"value": 48.22},
        "train/loss": {"value": "NaN"},
    }
    summary = {"values": values, "facts": {"global_batch_size": 16}, "world_size": 2}
    assert _figures(summary) == ["12.3k tokens/s", "48.22 samples/s", "global batch size 16", "world size 2"]
    assert _figures({"values": {}, "facts": {}, "world_size": None}) == []


def test_one_job_shows_how_its_rented_machine_starts(capsys: pytest.CaptureFixture[str]) -> None:
    start = {
        "attempt": 1,
        "failure": "The disk is full. Choose a larger one.",
        "stages": [
            {"name": "machine", "state": "done", "seconds": 41.2, "text": "driver 580"},
            {"name": "packages", "state": "failed", "seconds": None, "text": ""},
        ],
        "log": [{"seconds": 43.0, "stage": "packages", "text": "Collecting torch"}],
    }
    _show_start({"attempt": 1, "error_message": None, "summary": {"start": start, "step": None}})
    shown = capsys.readouterr().out
    assert "machine up         done 41 s  driver 580" in shown
    assert "packages           failed" in shown
    assert "The disk is full. Choose a larger one." in shown
    assert "43 s  packages  Collecting torch" in shown
    # Nothing of a start that is over, or of an earlier attempt.
    _show_start({"attempt": 1, "error_message": None, "summary": {"start": start, "step": 3}})
    _show_start({"attempt": 2, "error_message": None, "summary": {"start": start, "step": None}})
    assert capsys.readouterr().out == ""

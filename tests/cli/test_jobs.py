"""`bloom jobs list`: one line for each job."""

from typing import Any

import pytest

from gpubloom.cli.jobs import _line


def _job(**changes: Any) -> dict[str, Any]:
    job = {"id": "1", "status": "failed", "name": "n", "summary": {}, "rows_used": None, "rows_total": None}
    return job | changes


@pytest.mark.parametrize(("stored", "shown"), [("NaN", "NaN"), ("Infinity", "Infinity"), (1.5, "1.500")])
def test_a_job_whose_loss_is_no_number_is_listed(stored: object, shown: str) -> None:
    assert f"loss {shown}" in _line(_job(summary={"values": {"train/loss": {"value": stored}}}))


def test_a_job_is_listed_with_the_provider_whose_offer_was_taken() -> None:
    assert "modal" in _line(_job(offer={"provider": "modal"}))
    assert "local" in _line(_job(offer=None))

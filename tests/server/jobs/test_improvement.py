"""Whether a run improved, over HTTP: from its stored evaluations, for the people of its project."""

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.jobs.tables import MetricPoint, MetricSeries
from tests.server.installation import Installation, Server
from tests.server.jobs.recorded import add_job


def add_series(
    installation: Installation, job_id: object, name: str, values: dict[int, float | None], attempt: int = 1
) -> None:
    with installation.session() as session:
        series = MetricSeries(job_id=job_id, name=name, rank=0, axis="step")
        session.add(series)
        session.flush()
        for seq, (step, value) in enumerate(values.items(), start=1):
            session.add(
                MetricPoint(series_id=series.id, x=step, attempt=attempt, seq=seq, time=1e9, value=value)
            )


@pytest.mark.parametrize(
    ("margin", "kind", "text", "best"),
    [
        (0.05, None, "Yes", True),
        (0.4, None, "No clear change", False),
        (0.05, "overfitting", "Yes, up to step 40; then it overfits", False),
        (0.05, "diverging", "No: diverging", False),
    ],
)
def test_the_answer_has_an_interval_and_a_best_step_only_for_a_healthy_run(
    installation: Installation,
    server: Server,
    member: User,
    margin: float,
    kind: str | None,
    text: str,
    best: bool,
) -> None:
    findings = [] if kind is None else [{"kind": kind, "severity": "warning", "sentence": "So it is."}]
    job = add_job(installation, member, kind="train", status="completed", summary={"findings": findings})
    add_series(installation, job.id, "eval/loss", {0: 2.0, 20: 1.9, 40: 1.7})
    add_series(installation, job.id, "eval/loss_change", {20: -0.1, 40: -0.3})
    add_series(installation, job.id, "eval/loss_change_margin", {20: margin, 40: margin})
    ada = server.signed_in(member)
    found = ada.get(f"/api/jobs/{job.id}/improvement").json()["improvement"]
    assert (found["text"], found["has_best"]) == (text, best)
    assert (found["low"], found["high"]) == pytest.approx((-0.3 - margin, -0.3 + margin))
    assert found["first"] == {"step": 0, "loss": 2.0}
    other = server.signed_in(installation.add_user("grace@example.org"))
    assert other.get(f"/api/jobs/{job.id}/improvement").status_code == 404


def test_a_job_that_was_not_evaluated_has_no_answer(
    installation: Installation, server: Server, member: User
) -> None:
    job = add_job(installation, member, kind="train", status="completed")
    assert server.signed_in(member).get(f"/api/jobs/{job.id}/improvement").json() == {"improvement": None}


def test_evaluations_that_are_not_finite_are_not_passed_over(
    installation: Installation, server: Server, member: User
) -> None:
    job = add_job(installation, member, kind="train", status="failed")
    add_series(installation, job.id, "eval/loss", {0: 3.0, 50: 1.5, 100: None})
    found = server.signed_in(member).get(f"/api/jobs/{job.id}/improvement").json()["improvement"]
    assert (found["verdict"], found["not_finite_since"], found["latest"]["step"]) == ("no", 100, 50)

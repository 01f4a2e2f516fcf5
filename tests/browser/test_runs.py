"""Runs side by side, and all that they have saved: from rows that runs would have left in the database."""

import math
import re
from uuid import uuid4

import pytest
from playwright.sync_api import expect
from sqlalchemy import select

from gpubloom.plan import TrainConfig
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.jobs.tables import Checkpoint, MetricPoint, MetricSeries, TrainingJob
from gpubloom.server.projects.tables import Project
from tests.browser.conftest import EVERY_SIZE, NewPage, axe_violations
from tests.browser.people import create_project, set_up
from tests.live_server import LiveServer
from tests.server.installation import Installation

STEPS = 60
# Name, learning rate, and the eval loss that it came to.
RUNS = (("Careful", 1e-4, 1.9), ("Bold", 1e-2, 1.2), ("Reckless", 1.0, 3.4))


def add_runs(server: LiveServer) -> None:
    database = Installation(server.home, f"sqlite:///{server.home / 'bloom.db'}")
    with database.session() as session:
        user, project = session.scalars(select(User)).one(), session.scalars(select(Project)).one()
        for name, rate, loss in RUNS:
            config = TrainConfig.model_validate({"name": name, "learning_rate": rate, "max_steps": STEPS})
            values = {"train/loss": loss, "eval/loss": loss, "train/tokens_seen": STEPS * 256.0}
            job = TrainingJob(
                id=uuid4(),
                project_id=project.id,
                user_id=user.id,
                name=name,
                status="completed",
                config=config.model_dump(mode="json"),
                start_time=now(),
                end_time=now(),
                attempt=1,
                summary={
                    "step": STEPS,
                    "total_steps": STEPS,
                    "values": {series: {"value": value} for series, value in values.items()},
                },
            )
            session.add(job)
            session.flush()
            for series_name, last in values.items():
                series = MetricSeries(job_id=job.id, name=series_name, rank=0, axis="step")
                session.add(series)
                session.flush()
                for step in range(1, STEPS + 1):
                    falling = last + 4 * math.exp(-step / 8)
                    value = step * 256.0 if series_name == "train/tokens_seen" else falling
                    session.add(
                        MetricPoint(
                            series_id=series.id, x=step, attempt=1, seq=step, time=1e9 + step, value=value
                        )
                    )
            session.add(
                Checkpoint(
                    id=uuid4(),
                    job_id=job.id,
                    attempt=1,
                    step=STEPS,
                    path=f"checkpoints/step-{STEPS}",
                    size=425_000,
                    metrics={"eval/loss": loss},
                    best=True,
                    saved_at=now(),
                )
            )


@pytest.mark.long
@EVERY_SIZE
def test_runs_are_chosen_laid_over_each_other_and_told_apart(
    new_page: NewPage, own_server: LiveServer, size: tuple[int, int]
) -> None:
    page = new_page(size)
    set_up(page, own_server)
    create_project(page, "Rates", "0.001", "corpus.txt")
    add_runs(own_server)

    page.goto("/runs")
    for name in ("Careful", "Bold"):
        page.get_by_role("checkbox", name=f"Show {name} in the chart").check()
    panel = page.get_by_role("region", name="Comparison")
    expect(panel).to_contain_text("2 runs selected in 2 groups")
    # Only what differs, and everything on request.
    expect(panel.get_by_role("row", name="learning_rate")).to_contain_text("1e-4")
    expect(panel.get_by_role("row", name="batch_size")).to_have_count(0)
    panel.get_by_role("button", name=re.compile("equal settings")).click()
    expect(panel.get_by_role("row", name="batch_size")).to_be_visible()
    assert axe_violations(page) == []
    assert not page.evaluate("document.documentElement.scrollWidth > window.innerWidth")

    page.goto("/checkpoints")
    rows = page.get_by_role("table", name="Checkpoints").get_by_role("row")
    expect(rows).to_have_count(1 + len(RUNS))
    page.get_by_label("Search runs").fill("bold")
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="More actions for step 60").click()
    page.get_by_role("menuitem", name="Export").click()
    expect(page.get_by_role("dialog", name="Export step 60")).to_be_visible()
    assert axe_violations(page) == []

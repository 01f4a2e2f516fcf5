"""Samples are for the people of the project; whatever a script wrote, the answer keeps its form."""

import json

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.traincard import Reporter
from tests.server.installation import Installation, Server
from tests.server.jobs.recorded import add_job

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)


def test_the_owner_reads_samples_step_by_step_and_nobody_else_does(
    installation: Installation, server: Server, member: User
) -> None:
    job = add_job(installation, member, kind="train", status="completed")
    with Reporter(installation.home / "runs" / str(job.id), telemetry_seconds=0) as reporter:
        for step, text in ((0, "Who knows?"), (10, "Blue herons.")):
            reporter.sample("What is the password?", text, step)
    ada = server.signed_in(member)
    assert ada.get(f"/api/jobs/{job.id}/samples").json() == {
        "items": [
            {
                "prompt": "What is the password?",
                "answers": [{"step": 0, "text": "Who knows?"}, {"step": 10, "text": "Blue herons."}],
            }
        ]
    }
    other = server.signed_in(installation.add_user("grace@example.org"))
    assert other.get(f"/api/jobs/{job.id}/samples").status_code == 404
    assert server.browser().get(f"/api/jobs/{job.id}/samples").status_code == 401
    link = ada.post(f"/api/jobs/{job.id}/shares").json()
    shown = server.browser().get(
        "/api/shared/job", headers={"X-Share-Token": link["link"].partition("#token=")[2]}
    )
    assert "password" not in json.dumps(shown.json())


def test_what_no_reporter_writes_is_left_out(
    installation: Installation, server: Server, member: User
) -> None:
    job = add_job(installation, member, kind="script", status="completed")
    run_dir = installation.home / "runs" / str(job.id)
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        reporter.sample("fine", "yes", 1)
    lines = [
        '{"prompt": 7, "text": "x", "step": 1}',
        '{"prompt": "no step", "text": "x"}',
        '{"prompt": "odd step", "text": "x", "step": true}',
        '{"prompt": "half", "text": "\\ud800", "step": 2}',
    ]
    with (run_dir / "traincard" / "events.jsonl").open("a") as events:
        for number, line in enumerate(lines):
            events.write(f'{{"seq": {100 + number}, "t": 1.0, "kind": "sample", {line[1:]}\n')
    found = server.signed_in(member).get(f"/api/jobs/{job.id}/samples").json()["items"]
    assert [each["prompt"] for each in found] == ["fine", "half"]
    empty = add_job(installation, member, kind="script", status="queued")
    assert server.signed_in(member).get(f"/api/jobs/{empty.id}/samples").json() == {"items": []}

"""What ran is for the people of the project; whatever a script wrote, the answer keeps its form."""

import json
from pathlib import Path

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.traincard import Reporter
from tests.server.installation import Installation, Server
from tests.server.jobs.recorded import add_job

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)


def run_dir_of(installation: Installation, job_id: object) -> Path:
    return installation.home / "runs" / str(job_id)


def test_the_owner_reads_it_and_nobody_else(installation: Installation, server: Server, member: User) -> None:
    job = add_job(installation, member, kind="train", status="completed")
    with Reporter(run_dir_of(installation, job.id), telemetry_seconds=0) as reporter:
        reporter.event(
            "ran", {"command": ["python", "train.py"], "git": {"commit": "a" * 40, "diff": "+lr = 2"}}
        )
        reporter.config({"lr": 1e-3, "hub_token": "abc"}, "TrainingArguments")
        reporter.dataset("train", [1, 2, 3])
    ada = server.signed_in(member)
    found = ada.get(f"/api/jobs/{job.id}/what-ran").json()
    assert found["command"] == ["python", "train.py"]
    assert found["git"]["diff"] == "+lr = 2"
    assert found["configs"] == {"TrainingArguments": {"lr": 1e-3, "hub_token": "[hidden]"}}
    assert found["datasets"][0]["rows"] == 3
    other = server.signed_in(installation.add_user("grace@example.org"))
    assert other.get(f"/api/jobs/{job.id}/what-ran").status_code == 404
    link = ada.post(f"/api/jobs/{job.id}/shares").json()
    shown = server.browser().get(
        "/api/shared/job", headers={"X-Share-Token": link["link"].partition("#token=")[2]}
    )
    assert shown.status_code == 200
    for text in ("train.py", "lr = 2", "TrainingArguments", "a" * 40):
        assert text not in json.dumps(shown.json())


def test_what_no_reporter_writes_is_left_out(
    installation: Installation, server: Server, member: User
) -> None:
    job = add_job(installation, member, kind="script", status="completed")
    run_dir = run_dir_of(installation, job.id)
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        reporter.metric("loss", 1.0, 1)
    lines = [
        '{"command": 7, "git": [], "machine": {"a": NaN}, "packages": "x", "datasets": [1, {"name": 5}]}',
        '{"configs": {"a": {"b": NaN, "c": "\\ud800"}}, "folder": {}}',
        '{"configs": {"deep": ' + "[" * 500 + "]" * 500 + "}}",
    ]
    with (run_dir / "traincard" / "events.jsonl").open("a") as events:
        for number, line in enumerate(lines):
            events.write(f'{{"seq": {100 + number}, "t": 1.0, "kind": "ran", {line[1:]}\n')
    answer = server.signed_in(member).get(f"/api/jobs/{job.id}/what-ran")
    assert answer.status_code == 200
    assert answer.json()["command"] == []
    empty = add_job(installation, member, kind="script", status="queued")
    assert server.signed_in(member).get(f"/api/jobs/{empty.id}/what-ran").json()["git"] is None

"""What the agent says of the start of its job, and to whom."""

import errno
import json
from pathlib import Path

import pytest

from gpubloom.agent.remote.link import Rejected, Unavailable
from gpubloom.agent.remote.start_report import StartReport
from gpubloom.agent.remote.uploader import _why_not_started
from gpubloom.providers.start_report import parse_start_report


class Sent:
    """Takes what is sent; `problem` is raised instead."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.bodies: list[bytes] = []
        self.problem = problem

    def get(self, address: str) -> bytes:
        raise NotImplementedError

    def put(self, address: str, body: bytes) -> None:
        if self.problem is not None:
            raise self.problem
        self.bodies.append(body)

    def fetch(self, address: str, path: Path, sha256: str) -> None:
        raise NotImplementedError


def test_each_line_is_sent_with_what_the_machine_said_before(tmp_path: Path) -> None:
    path, link = tmp_path / "report", Sent()
    path.write_text("1790000000 machine + up\n1790000001 machine - driver 580\n")
    report = StartReport(path, "https://store.test/report", link, lambda: 1790000005.7)
    report.begin("data", "3 files\nto download")
    report.failed("data", "disk_full", "The disk is full. Choose a larger one.")
    found = parse_start_report(link.bodies[-1])
    assert [(stage.name, stage.state) for stage in found.stages] == [("machine", "done"), ("data", "failed")]
    assert found.failure is not None
    assert (found.failure.code, found.failure.sentence) == (
        "disk_full",
        "The disk is full. Choose a larger one.",
    )
    assert [line.text for line in found.lines][2] == "3 files to download"


@pytest.mark.parametrize("problem", [Unavailable("away"), Rejected("no")])
def test_a_report_that_cannot_be_sent_or_written_holds_up_nothing(tmp_path: Path, problem: Exception) -> None:
    StartReport(tmp_path / "report", "https://store.test/report", Sent(problem)).done("start", "the job runs")
    # A path that cannot be written, as on a full disk: the line is sent all the same.
    link = Sent()
    StartReport(tmp_path / "no-folder" / "report", "https://store.test/r", link).done("start", "the job runs")
    assert parse_start_report(link.bodies[0]).is_over


def test_without_an_address_nothing_is_written(tmp_path: Path) -> None:
    StartReport(tmp_path / "report", "", Sent()).begin("data", "3 files")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (Rejected("the bucket refused the request with status 403"), "address_expired"),
        (OSError(errno.ENOSPC, "No space left on device"), "disk_full"),
        (json.JSONDecodeError("bad", "x", 0), "not_started"),
    ],
)
def test_a_job_that_cannot_be_prepared_says_why(problem: Exception, code: str) -> None:
    told, sentence = _why_not_started(problem)
    assert told == code
    assert sentence

"""What viewers are told adds up to what there is."""

from pathlib import Path
from typing import Any

import pytest

from gpubloom.traincard import Reporter
from gpubloom.traincard.live.feed import Feed
from gpubloom.traincard.live.websocket import Viewer

Line = tuple[str, int, int]


def _lines(points: list[dict[str, Any]], lines: dict[Line, tuple[list[Any], list[Any]]]) -> None:
    for point in points:
        key = (point["name"], point["rank"], point["attempt"])
        x, y = lines.get(key, ([], []))
        keep = point["keep"]
        lines[key] = (x[:keep] + point["x"], y[:keep] + point["y"])


@pytest.fixture
def reporter(tmp_path: Path) -> Any:
    with Reporter(tmp_path / "run", telemetry_seconds=0) as opened:
        yield opened


def _report(reporter: Reporter, steps: range) -> None:
    for step in steps:
        reporter.metrics({"train/loss": 1 / (1 + step % 97)}, step=step)
        if step % 50 == 0:
            reporter.metrics({"eval/loss": step}, step=step)
    reporter.flush()


def test_points_told_one_by_one_add_up_to_the_whole_run_also_when_curves_are_condensed(
    reporter: Reporter, tmp_path: Path
) -> None:
    feed = Feed(tmp_path / "run", resumes=False)
    lines: dict[Line, tuple[list[Any], list[Any]]] = {}
    sizes = []
    revision = feed.revision
    for begin in range(0, 3000, 37):
        _report(reporter, range(begin, begin + 37))
        assert feed.look() is not None
        told = feed.points_after(revision)
        assert not told["complete"]
        revision = told["revision"]
        _lines(told["points"], lines)
        sizes.append(sum(len(point["x"]) for point in told["points"]))
        whole: dict[Line, tuple[list[Any], list[Any]]] = {}
        _lines(feed.points_after(None)["points"], whole)
        assert lines == whole
    assert len(lines["train/loss", 0, 1][0]) > 500
    # Most changes are short, however long the run is.
    assert sorted(sizes)[len(sizes) // 2] < 60


def test_nothing_new_is_no_message(reporter: Reporter, tmp_path: Path) -> None:
    _report(reporter, range(10))
    feed = Feed(tmp_path / "run", resumes=False)
    assert feed.look() is not None
    revision = feed.revision
    assert feed.look() is None
    assert feed.points_after(revision) == {"revision": revision, "complete": False, "points": []}


def test_a_revision_that_this_server_never_said_gets_everything(reporter: Reporter, tmp_path: Path) -> None:
    _report(reporter, range(10))
    feed = Feed(tmp_path / "run", resumes=False)
    feed.look()
    for stranger in (1, feed.revision + 1):
        told = feed.points_after(stranger)
        assert told["complete"]
        assert {point["name"]: len(point["x"]) for point in told["points"]} == {
            "train/loss": 10,
            "eval/loss": 1,
        }


class _Transport:
    def __init__(self) -> None:
        self.waiting = 0

    def get_write_buffer_size(self) -> int:
        return self.waiting


class _Writer:
    def __init__(self) -> None:
        self.transport = _Transport()
        self.written: list[bytes] = []

    def write(self, content: bytes) -> None:
        self.written.append(content)


def test_a_viewer_that_does_not_keep_up_is_skipped_and_then_gets_the_whole_run(
    reporter: Reporter, tmp_path: Path
) -> None:
    _report(reporter, range(10))
    feed = Feed(tmp_path / "run", resumes=False)
    feed.look()
    writer = _Writer()
    viewer = Viewer(writer)  # type: ignore[arg-type]
    viewer.tell(b"first", feed)
    writer.transport.waiting = 10_000_000
    viewer.tell(b"missed", feed)
    writer.transport.waiting = 0
    viewer.tell(b"missed too", feed)
    viewer.tell(b"last", feed)
    assert writer.written[0] == b"first"
    assert writer.written[1].endswith(feed.whole())
    assert writer.written[2:] == [b"last"]

"""What viewers are told adds up to what there is."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gpubloom.metrics_server.feed import Feed
from gpubloom.metrics_server.server import Viewer
from gpubloom.traincard import Reporter

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


class _Socket:
    """A WebSocket that takes messages while `may_send` is set."""

    def __init__(self) -> None:
        self.may_send = asyncio.Event()
        self.sent: list[str] = []

    async def send_text(self, message: str) -> None:
        await self.may_send.wait()
        self.sent.append(message)

    async def close(self, code: int, reason: str) -> None:
        self.sent.append(f"{code} {reason}")


def test_a_viewer_that_does_not_keep_up_gets_the_whole_run_instead_of_what_it_missed(
    reporter: Reporter, tmp_path: Path
) -> None:
    _report(reporter, range(10))
    feed = Feed(tmp_path / "run", resumes=False)
    feed.look()
    first = feed.whole()

    async def watch() -> list[str]:
        websocket = _Socket()
        viewer = Viewer(websocket, feed)  # type: ignore[arg-type]
        sending = asyncio.create_task(viewer._send())
        # The first message is on its way.
        await asyncio.sleep(0)
        _report(reporter, range(10, 20))
        assert feed.look() is not None
        for number in range(18):
            viewer.tell(f"change {number}")
        viewer.dismiss("over")
        websocket.may_send.set()
        await sending
        return websocket.sent

    assert asyncio.run(watch()) == [first, feed.whole(), "change 17", "1001 over"]


def test_changes_arrive_in_order_at_a_viewer_that_keeps_up(reporter: Reporter, tmp_path: Path) -> None:
    _report(reporter, range(10))
    feed = Feed(tmp_path / "run", resumes=False)
    feed.look()

    async def watch() -> list[str]:
        websocket = _Socket()
        websocket.may_send.set()
        viewer = Viewer(websocket, feed)  # type: ignore[arg-type]
        sending = asyncio.create_task(viewer._send())
        for number in range(40):
            viewer.tell(f"change {number}")
            await asyncio.sleep(0)
        viewer.dismiss("over")
        await sending
        return websocket.sent

    changes = [f"change {number}" for number in range(40)]
    assert asyncio.run(watch()) == [feed.whole(), *changes, "1001 over"]


def test_viewers_learn_what_the_process_printed_and_whether_it_takes_commands(
    reporter: Reporter, tmp_path: Path
) -> None:
    log = tmp_path / "run" / "logs" / "output.log"
    log.parent.mkdir()
    log.write_text("printed\n")
    feed = Feed(tmp_path / "run", resumes=False)
    feed.look()
    assert json.loads(feed.whole())["run"]["logs"]["output"] == ["printed"]
    assert json.loads(feed.whole())["run"]["control"]["listens"] is False
    reporter.control.poll()
    reporter.flush()
    change = feed.look()
    assert change is not None
    assert json.loads(change)["sections"]["control"]["listens"] is True

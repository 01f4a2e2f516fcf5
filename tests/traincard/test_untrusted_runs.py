"""A run that somebody else wrote: no link is followed, nobody waits for a pipe, no line stops the reader."""

import json
import math
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubloom.traincard import ControlFile, Reader, Reading, Reporter, diagnose, load_latest, snapshot
from gpubloom.traincard.lock import RunLock
from gpubloom.traincard.reader import load_checkpoints, read_all
from gpubloom.traincard.reading import last_output
from gpubloom.traincard.safe_paths import open_beneath, walk_beneath

FILES = (
    "traincard/events.jsonl",
    "traincard/segments/a0001.r0000.s0001.jsonl",
    "traincard/latest.json",
    "traincard/checkpoints.json",
    "logs/output.log",
)
START = {"seq": 0, "t": 1.0, "kind": "start", "v": 1, "attempt": 1, "rank": 0, "segment": 1}


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A run of somebody else."""
    with Reporter(tmp_path / "other") as reporter:
        reporter.metric("private", 1.0, 1)
    (tmp_path / "other/logs").mkdir()
    (tmp_path / "other/logs/output.log").write_text("private\n")
    (tmp_path / "other/traincard/checkpoints.json").write_text('{"checkpoints": [{"path": "private"}]}')
    (tmp_path / "other/traincard/segments").mkdir(exist_ok=True)
    lines = [START, {"seq": 1, "t": 1.0, "kind": "metric", "step": 1, "values": {"private": 1.0}}]
    segment = tmp_path / "other/traincard/segments/a0001.r0000.s0001.jsonl"
    segment.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path / "other"


def link_files(run_dir: Path, other: Path) -> None:
    for name in FILES:
        (run_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (run_dir / name).symlink_to(other / name)


def link_folders(run_dir: Path, other: Path) -> None:
    run_dir.mkdir()
    for name in ("traincard", "logs"):
        (run_dir / name).symlink_to(other / name)


def make_pipes(run_dir: Path, other: Path) -> None:
    for name in FILES:
        (run_dir / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(run_dir / name)
    os.mkfifo(run_dir / "traincard/lock")


def make_loops(run_dir: Path, other: Path) -> None:
    (run_dir / "logs").mkdir(parents=True)
    for name in ("traincard", "logs/output.log"):
        (run_dir / name).symlink_to(Path(name).name)


def make_inner_loops(run_dir: Path, other: Path) -> None:
    (run_dir / "traincard").mkdir(parents=True)
    for name in ("segments", "events.jsonl", "latest.json", "checkpoints.json"):
        (run_dir / "traincard" / name).symlink_to(name)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("leave", [link_files, link_folders, make_pipes, make_loops, make_inner_loops])
def test_nothing_is_read_through_a_link_or_from_a_pipe(
    tmp_path: Path, other: Path, leave: Callable[[Path, Path], None]
) -> None:
    run_dir = tmp_path / "run"
    leave(run_dir, other)
    assert list(read_all(other)), "there is something to see"
    assert list(read_all(run_dir)) == []
    assert load_latest(run_dir) is None
    assert load_checkpoints(run_dir)["checkpoints"] == []
    assert last_output(run_dir) == []
    assert RunLock.holder(run_dir) is None


@pytest.mark.timeout(30)
@pytest.mark.parametrize("where", ["traincard", "traincard/control.json", "traincard/control.lock"])
def test_a_command_is_not_written_through_a_link(tmp_path: Path, where: str) -> None:
    run_dir, outside = tmp_path / "run", tmp_path / "outside"
    outside.mkdir()
    (outside / "control.json").write_text('{"version": 7, "want": "pause", "set": {}, "save": 0}')
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    (run_dir / where).parent.mkdir(parents=True)
    (run_dir / where).symlink_to(outside / Path(where).relative_to("traincard"))
    control = ControlFile(run_dir)
    if where == "traincard/control.json":
        assert control.want("pause").version == 1, "the link is replaced"
        assert not (run_dir / where).is_symlink()
    else:
        with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
            control.want("cancel")
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == before


def write_tail(run_dir: Path, *lines: bytes) -> None:
    (run_dir / "traincard").mkdir(parents=True, exist_ok=True)
    (run_dir / "traincard/events.jsonl").write_bytes(b"".join(lines))


def test_a_line_without_an_end_costs_no_memory_and_those_after_it_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubloom.traincard.reader._LONGEST_LINE", 1 << 16)
    monkeypatch.setattr("gpubloom.traincard.reader._CHUNK_BYTES", 1 << 12)
    start, end = json.dumps(START).encode(), b'{"seq":1,"t":1.0,"kind":"log","line":"after"}'
    write_tail(tmp_path, start, b"\n", b"x" * (1 << 20), b"\n", end, b"\n")
    reader = Reader(tmp_path)
    found = []
    while events := reader.read_new(1 << 12):
        found += [event.kind for event in events]
    while not reader.is_caught_up:
        found += [event.kind for event in reader.read_new(1 << 12)]
    assert found == ["start", "log"]
    assert reader.damaged_lines > 0


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just(10**400),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip
LINES = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("seq", "t", "kind", "step", "v", "attempt", "values", "tags"), ODD)
)


@given(st.lists(st.one_of(LINES.map(json.dumps).map(str.encode), st.binary(max_size=40)), max_size=8))
@settings(max_examples=300, deadline=None)
def test_no_line_stops_a_reader(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    run_dir = tmp_path_factory.mktemp("run")
    good = b'{"seq":5,"t":1.0,"kind":"metric","step":1,"values":{"loss":1.0}}'
    deep = b"[" * 20_000
    write_tail(run_dir, json.dumps(START).encode() + b"\n", *(line + b"\n" for line in [*lines, deep, good]))
    events = list(read_all(run_dir))
    assert events[-1].fields == json.loads(good)
    assert all(0 <= event.t < 1e12 and abs(event.seq) < 1 << 53 for event in events)


@pytest.mark.parametrize(
    "content",
    [
        {"values": 5},
        {"values": {"loss": 5, "x": {}}},
        {"system": [1]},
        {"values": {"loss": {"value": "NaN"}}},
    ],
)
def test_a_latest_json_of_another_shape_is_read_as_far_as_it_goes(tmp_path: Path, content: Any) -> None:
    (tmp_path / "traincard").mkdir()
    (tmp_path / "traincard/latest.json").write_text(json.dumps(content))
    found = load_latest(tmp_path)
    assert found is not None
    assert all("value" in last for last in found["values"].values())


def test_folders_that_are_nested_without_end_are_walked_to_a_limit(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1_500):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    (tmp_path / "file").write_text("x")
    found = [name for name, _ in walk_beneath(tmp_path)]
    assert "file" in found
    assert len(found) < 100
    # Deeper than pytest can remove.
    subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)


def test_a_folder_that_another_process_makes_at_the_same_moment_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = os.mkdir

    def later_than_another(folder: str, *, dir_fd: int) -> None:
        mkdir(folder, dir_fd=dir_fd)
        mkdir(folder, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", later_than_another)
    os.close(open_beneath(tmp_path, "traincard/control.json", os.O_WRONLY | os.O_CREAT, make=True))
    assert (tmp_path / "traincard" / "control.json").is_file()


@pytest.mark.parametrize("wrong", ["x", ["x"], {"x": {}}, 7, 10**400, math.nan])
@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("start", "host"),
        ("metric", "values"),
        ("metric", "tags"),
        ("system", "values"),
        ("checkpoint", "metrics"),
        ("error", "cause"),
        ("heartbeat", "expect_next_in"),
        ("ran", "datasets"),
        ("describe", "facts"),
        ("progress", "total_steps"),
        ("resumed", "from_step"),
        ("applied", "refused"),
        ("dropped", "counts"),
        ("end", "status"),
    ],
)
def test_a_field_of_a_wrong_type_does_not_make_the_run_unreadable(
    tmp_path: Path, kind: str, field: str, wrong: object
) -> None:
    lines: list[dict[str, Any]] = [
        START,
        {"seq": 1, "t": 1.0, "kind": "metric", "step": 1, "values": {"loss": 2.0}},
        {"seq": 2, "t": 4.0, "kind": kind, "values": {"loss": 1.5}, field: wrong},
        {"seq": 3, "t": 5.0, "kind": "metric", "step": 2, "values": {"loss": 1.0}},
    ]
    (tmp_path / "traincard").mkdir()
    (tmp_path / "traincard/events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    reading = Reading(tmp_path)
    reading.update()
    diagnose(reading)
    assert snapshot(reading)["status"]["step"] >= 2


@pytest.mark.parametrize("wrong", [10**400, {"x": 10**400}, [{"name": ["x"]}, {"name": "y"}]])
@pytest.mark.parametrize(
    ("kind", "field"), [("system", "values"), ("describe", "facts"), ("ran", "datasets")]
)
def test_a_value_that_no_number_holds_does_not_make_the_run_unreadable(
    tmp_path: Path, kind: str, field: str, wrong: object
) -> None:
    lines = [START, {"seq": 1, "t": 4.0, "kind": kind, field: wrong}]
    lines += [{"seq": 2 + step, "t": 5.0, "kind": "metric", "step": step, "values": {}} for step in range(3)]
    (tmp_path / "traincard").mkdir()
    (tmp_path / "traincard/events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    reading = Reading(tmp_path)
    reading.update()
    diagnose(reading)
    assert snapshot(reading)["status"]["step"] == 2


def _set(*path: str | int, to: object) -> Callable[[Any], None]:
    def change(found: Any) -> None:
        for key in path[:-1]:
            found = found[key]
        found[path[-1]] = to

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("events", 1, "from_step", to="x"),
        _set("events", 1, "seq", to="x"),
        _set("events", 1, "kind", to=["x"]),
        _set("events", 1, to={}),
        _set("bytes", to=-1),
        _set("seq", to=10**400),
        _set("t", to=10**400),
        _set("log_lines_left_out", to="x"),
        _set("series", to=[]),
        _set("series", "train/loss", to=[]),
        _set("series", "train/loss", to={}),
        _set("series", "train/loss", "low", to=[]),
        _set("series", "train/loss", "low", to=[10**400]),
        _set("series", "train/loss", "last", to=["NaN"]),
        _set("series", "train/loss", "last", to=[1e300]),
        _set("series", "train/loss", "count", to=[1 << 62]),
        _set("series", "train/loss", "count", to=[1.5]),
        _set("series", "train/loss", "finite", to=["x"]),
    ],
)
def test_a_condensed_file_that_no_writer_wrote_is_ignored(
    tmp_path: Path, change: Callable[[Any], None]
) -> None:
    with Reporter(tmp_path, capture=False) as reporter:
        reporter.resumed(1)
        reporter.metric("loss", 1.0, 2)
    (condensed,) = (path for path in (tmp_path / "traincard").rglob("*") if '"series"' in _text(path))
    content = json.loads(condensed.read_text())
    (resumed,) = (event for event in content["events"] if event["kind"] == "resumed")
    content["events"] = [content["events"][0], resumed]
    change(content)
    condensed.write_text(json.dumps(content))
    reading = Reading(tmp_path)
    reading.update()
    diagnose(reading)
    status = snapshot(reading)["status"]
    assert (status["step"], status["resumed_from_step"]) == (2, 1)


def _text(path: Path) -> str:
    return path.read_text() if path.is_file() else ""

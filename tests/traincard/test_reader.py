"""The reader uses every full line and nothing else, whatever a crash left behind."""

import json
import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from gpubloom.errors import InputError
from gpubloom.traincard import Reader, Reporter, read_all
from tests.errors import raises
from tests.traincard.conftest import events_of


def _lines(count: int = 30) -> bytes:
    start = {"seq": 0, "t": 1.0, "kind": "start", "v": 1, "attempt": 1, "rank": 0, "segment": 1}
    lines = [start] + [
        {"seq": seq, "t": 1.0 + seq, "kind": "metric", "step": seq, "values": {"loss": seq / 7, "täg": "NaN"}}
        for seq in range(1, count)
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


_DATA = _lines()


def _write(run_dir: Path, data: bytes) -> Path:
    path = run_dir / "traincard" / "events.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@settings(max_examples=100, deadline=None)
@given(cut=st.integers(0, len(_DATA)))
def test_a_file_cut_at_any_byte_is_readable_up_to_its_last_full_line(cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = _write(Path(folder), _DATA[:cut])
        reader = Reader(folder)
        events = reader.read_new()
        assert [event.seq for event in events] == list(range(_DATA[:cut].count(b"\n")))
        assert reader.damaged_lines == 0
        # The rest arrives later, as when the writer was only in the middle of a write.
        path.write_bytes(_DATA)
        assert [event.seq for event in [*events, *reader.read_new()]] == list(range(30))


@settings(max_examples=50, deadline=None)
@given(cut=st.integers(1, len(_DATA)), seed=st.integers())
def test_a_restart_after_a_cut_at_any_byte_keeps_what_was_whole(cut: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder), _DATA[:cut])
        reader = Reader(folder)
        before = reader.read_new(max_bytes=random.Random(seed).randint(1, 4000))
        with Reporter(folder, telemetry_seconds=0) as reporter:
            reporter.metric("loss", 1.0, 1)
        after = list(before)
        while found := reader.read_new():
            after += found
        whole = _DATA[:cut].count(b"\n")
        kept = [(event.attempt, event.seq) for event in after if event.fields.get("pid") is None][:whole]
        assert kept == [(1, seq) for seq in range(whole)]
        assert [event.kind for event in after[whole:]] == ["start", "metric", "end"]


def test_reading_goes_on_from_a_stored_cursor(run_dir: Path) -> None:
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        reporter.metric("loss", 1.0, 1)
        reporter.flush()
        first = Reader(run_dir)
        assert len(first.read_new()) == 2
        reporter.metric("loss", 1.0, 2)
    stored = json.loads(json.dumps(first.cursor))
    assert [event.step for event in Reader(run_dir, cursor=stored).read_new()] == [2, None]


def test_one_call_reads_a_bounded_piece_and_the_calls_together_everything(run_dir: Path) -> None:
    _write(run_dir, _lines(5000))
    reader = Reader(run_dir)
    pieces = []
    while piece := reader.read_new(max_bytes=10_000):
        pieces.append(piece)
    assert max(len(piece) for piece in pieces) < 250
    assert [event.seq for piece in pieces for event in piece] == list(range(5000))


def test_a_line_longer_than_the_piece_is_read_whole(run_dir: Path) -> None:
    start = _DATA.split(b"\n", 1)[0] + b"\n"
    long = json.dumps({"seq": 1, "t": 1, "kind": "log", "line": "x" * 50_000}).encode() + b"\n"
    _write(run_dir, start + long)
    reader = Reader(run_dir)
    kinds = []
    while piece := reader.read_new(max_bytes=100):
        kinds += [event.kind for event in piece]
    assert kinds == ["start", "log"]


def test_a_damaged_line_in_the_middle_is_skipped_and_counted(run_dir: Path) -> None:
    lines = _lines(5).split(b"\n")
    lines[2] = b'{"seq":2,"t":\xff\x00 broken'
    lines[3] = b'["not", "an", "object"]'
    _write(run_dir, b"\n".join(lines))
    reader = Reader(run_dir)
    assert [event.seq for event in reader.read_new()] == [0, 1, 4]
    assert reader.damaged_lines == 2


def test_unknown_kinds_and_fields_are_kept(run_dir: Path) -> None:
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        reporter.event("reward_model", {"score": 3, "deep": {"a": [1]}}, step=4)
    event = events_of(run_dir, "reward_model")[0]
    assert (event.step, event.fields["score"], event.fields["deep"]) == (4, 3, {"a": [1]})
    assert list(event.series()) == []


def test_a_newer_protocol_is_refused_with_what_to_do(run_dir: Path) -> None:
    _write(run_dir, _DATA.replace(b'"v": 1', b'"v": 99'))
    with raises(InputError, code="newer_version"):
        Reader(run_dir).read_new()


def test_a_directory_without_a_run_has_no_events(tmp_path: Path) -> None:
    assert list(read_all(tmp_path)) == []
    assert list(read_all(tmp_path / "absent")) == []


def test_a_tail_without_a_readable_head_is_put_aside_not_thrown_away(run_dir: Path) -> None:
    _write(run_dir, b'{"seq":0,"t":1,"ki')
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        reporter.metric("loss", 1.0, 1)
    assert [event.kind for event in events_of(run_dir)] == ["start", "metric", "end"]
    kept = list((run_dir / "traincard" / "segments").glob("unreadable.*"))
    assert [path.read_bytes() for path in kept] == [b'{"seq":0,"t":1,"ki']

"""Follow the output of a script that has no Reporter: split it into lines, parse them, record what they say.

The thread that pumps the output only appends to a bounded buffer; everything else happens on a thread of its
own, and no failure here reaches the run. A script that reports by itself is left alone.
"""

import contextlib
import json
import logging
import re
import threading
import time
from collections import deque
from dataclasses import replace

from gpubloom.agent.progress.files import EventFiles, SavedFiles, files_now
from gpubloom.agent.progress.formats import read_line
from gpubloom.agent.progress.imports import knows_traincard
from gpubloom.agent.progress.recorder import Course, Point, Recorder
from gpubloom.agent.spec import JobSpec, Reason
from gpubloom.traincard.layout import RunFiles
from gpubloom.traincard.lock import RunInUseError, RunLock

LONGEST_LINE = 2_000
# What is kept of a line that has not ended yet.
_LONGEST_REST = 8_192
_ENDS = re.compile(r"[\r\n\x08]+")
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]{0,16}[A-Za-z]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[()][AB0]|[=>78])")
# torchrun, torchtune, torchtitan, mpirun, Ray.
_RANK = re.compile(
    r"^\s*(?:\[(?:rank|trainer|default)?\s?(?P<a>\d{1,5})(?:\|\d{1,5})?\]:\s?"
    r"|\[\d{1,5},(?P<b>\d{1,5})\]<std(?:out|err)>:\s?"
    r"|\((?:[A-Za-z]\w{0,40} )?(?:pid|rank)=(?P<c>\d{1,9})[^)]{0,60}\)\s?)"
)
logger = logging.getLogger("gpubloom.agent")
_TURN_SECONDS = 0.2
# Of what comes in between two turns the newest is kept: reading must cost less than printing.
_MOST_BYTES = 1 << 18
_LOOK_FOR_FILES_SECONDS = 10.0
_FINISH_SECONDS = 15.0
_LAST_LINES = 200
_EXCEPTION = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]{0,120}(?:Error|Exception|Interrupt|Exit|Warning)): (?P<message>.*)$"
)


class Lines:
    """Takes output in pieces of any size; what is cut in the middle waits for its rest."""

    def __init__(self) -> None:
        self._rest = b""

    def add(self, data: bytes) -> list[str]:
        whole = self._rest + data
        end = max(whole.rfind(b"\n"), whole.rfind(b"\r"), whole.rfind(b"\x08")) + 1
        self._rest = whole[end:][-_LONGEST_REST:]
        return _lines(whole[:end])

    def last(self) -> list[str]:
        """What came after the last line end, when nothing more will come."""
        rest, self._rest = self._rest, b""
        return _lines(rest)


def _lines(data: bytes) -> list[str]:
    parts = _ENDS.split(data.decode("utf-8", "replace"))
    return [line for part in parts if part and (line := clean(part[:LONGEST_LINE])) is not None]


def clean(line: str) -> str | None:
    """A line without colours and rank. None for ranks above 0, which repeat the same lines."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    for _ in range(2):
        # [rank0]:[titan] …
        match = _RANK.match(line)
        if match is None:
            break
        rank = match["a"] or match["b"] or "0"
        if int(rank) > 0:
            return None
        line = line[match.end() :]
    return line.strip() or None


def is_reporting(spec: JobSpec) -> bool:
    """Whether a Reporter of this attempt is there, or was."""
    if RunLock.holder(spec.run_dir) is not None:
        return True
    files = RunFiles(spec.run_dir)
    if any(stream.attempt == spec.attempt and stream.rank == 0 for stream in files.sealed()):
        return True
    try:
        with files.tail(0).open("rb") as tail:
            start = json.loads(tail.readline(65_536))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(start, dict) and start.get("attempt") == spec.attempt


class OutputFollower:
    """Follows one attempt. `feed` and `finish` are the pump's; all else happens on the thread."""

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self._chunks: deque[bytes] = deque()
        self._held = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._end: tuple[int | None, int | None, Reason] | None = None
        self._lines = Lines()
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._course = Course()
        self._recorder: Recorder | None = None
        self._silent = False
        self._told: dict[str, float] = {}
        self._printed: set[str] = set()
        before = files_now(spec.run_dir)
        self._files = EventFiles(spec.run_dir, before)
        self._saved = SavedFiles(spec.run_dir, before)
        self._files_at = time.monotonic() + _LOOK_FOR_FILES_SECONDS / 5
        self._thread = threading.Thread(target=self._run, name="agent-progress", daemon=True)

    @classmethod
    def of(cls, spec: JobSpec, environment: dict[str, str]) -> "OutputFollower | None":
        """Made before the script runs, and started with it. None: the output is not followed, because
        following is off or the script has its own Reporter."""
        is_off = environment.get("BLOOM_TRAINCARD", "").lower() == "off"
        if is_off or spec.has_reporter or knows_traincard(spec):
            return None
        return cls(spec)

    def start(self) -> None:
        self._thread.start()

    def feed(self, data: bytes) -> None:
        """Never waits for more than an append."""
        with self._lock:
            self._chunks.append(data)
            self._held += len(data)
            while self._held > _MOST_BYTES and len(self._chunks) > 1:
                self._held -= len(self._chunks.popleft())

    def finish(self, code: int | None, signal: int | None, reason: Reason) -> None:
        """The training ended; waits, within a limit, until that is recorded."""
        self._end = (code, signal, reason)
        self._ended.set()
        self._thread.join(_FINISH_SECONDS)

    def _run(self) -> None:
        try:
            while not self._ended.wait(_TURN_SECONDS) and not self._silent:
                self._turn()
            if not self._silent:
                self._turn()
                self._conclude()
        except Exception:
            logger.exception("Stopped reading metrics from the output of the script")
        finally:
            if self._recorder is not None:
                self._recorder.close()

    def _turn(self) -> None:
        with self._lock:
            data = b"".join(self._chunks)[-_MOST_BYTES:]
            self._chunks.clear()
            self._held = 0
        self._read(self._lines.add(data))
        if time.monotonic() >= self._files_at or self._ended.is_set():
            self._files_at = time.monotonic() + _LOOK_FOR_FILES_SECONDS
            # Files come and go while they are looked at.
            with contextlib.suppress(OSError):
                self._look_at_files()
                self._look_at_checkpoints()
        if self._recorder is not None and self._recorder.is_wanted:
            self._be_silent()

    def _read(self, lines: list[str]) -> None:
        self._last.extend(lines[-_LAST_LINES:])
        newest: Point | None = None
        for line in lines:
            said = read_line(line)
            if said is None or (point := self._course.take(said)) is None:
                continue
            if newest is not None and not _replaces(point, newest):
                self._record(newest)
            newest = point
        if newest is not None:
            self._record(newest)

    def _record(self, point: Point) -> None:
        expected = self._spec.total_steps
        if point.total is None and expected is not None:
            point = replace(point, total=expected)
        self._printed.update(point.values)
        if self._recorder is None and not self._open(point.step):
            return
        assert self._recorder is not None
        if self._course.facts != self._told:
            self._told = dict(self._course.facts)
            self._recorder.describe(self._told)
        self._recorder.point(point)

    def _look_at_files(self) -> None:
        for scalars in self._files.look():
            # What is printed as well would be drawn twice.
            values = {name: value for name, value in scalars.values.items() if name not in self._printed}
            if not values:
                continue
            if self._recorder is None and not self._open(scalars.step):
                return
            assert self._recorder is not None
            self._recorder.values(scalars.step, values)

    def _look_at_checkpoints(self) -> None:
        # Without any progress nobody knows what they are checkpoints of.
        if self._recorder is None:
            return
        for saved in self._saved.look(ended=self._ended.is_set()):
            step = saved.step if saved.step is not None else self._course.step
            self._recorder.checkpoint(str(saved.path), saved.size, step or 0)

    def _open(self, first_step: int) -> bool:
        if self._silent or is_reporting(self._spec):
            self._be_silent()
            return False
        try:
            self._recorder = Recorder.open(self._spec.run_dir, self._spec.attempt)
        except (OSError, RunInUseError) as problem:
            logger.warning("Metrics are not read from the output of the script: %s", problem)
            self._be_silent()
            return False
        if self._spec.attempt > 1 and first_step > 0:
            self._recorder.resumed(first_step)
        return True

    def _be_silent(self) -> None:
        self._silent = True
        if self._recorder is not None:
            self._recorder.close()
            self._recorder = None

    def _conclude(self) -> None:
        self._read(self._lines.last())
        if (rest := self._course.rest()) is not None:
            self._record(rest)
        if self._recorder is None or self._end is None or not self._spec.run_dir.is_dir():
            return
        code, signal, reason = self._end
        if reason != "ended":
            self._recorder.end("preempted", None)
        elif code == 0:
            self._recorder.end("completed", None)
        else:
            how = f"exit code {code}" if signal is None else f"signal {signal}"
            found = next((m for line in reversed(self._last) if (m := _EXCEPTION.match(line))), None)
            if found is not None:
                self._recorder.error(found["type"], found["message"], "\n".join(self._last))
            self._recorder.end(
                "failed", found[0][:2_000] if found is not None else f"The script ended with {how}."
            )


def _replaces(later: Point, earlier: Point) -> bool:
    """A bar is redrawn many times a second: only its last state is used, unless each state has a loss."""
    if later.values.keys() != earlier.values.keys():
        return False
    return later.step == earlier.step or not later.values.keys() - {"train/step_seconds"}

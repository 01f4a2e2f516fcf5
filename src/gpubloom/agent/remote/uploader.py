"""`bloom-agent.pyz remote FOLDER`: run the job described in FOLDER/start.json and upload its run directory.

The uploader never trains and never waits for training: the agent that trains is a process of its own, which
goes on when the uploader is killed. Started again, the uploader finds that process, or its exit record, and
goes on.
"""

import errno
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from gpubloom.agent.file_lock import hold, is_held
from gpubloom.agent.files import AgentFiles
from gpubloom.agent.remote.control_handler import ControlHandler
from gpubloom.agent.remote.link import DamagedError, Link, Rejected, StoreLink, Unavailable
from gpubloom.agent.remote.outbox import NoSlot, Outbox
from gpubloom.agent.remote.start import Folders, Start, prepare
from gpubloom.agent.remote.start_report import StartReport
from gpubloom.errors import InputError
from gpubloom.traincard.atomic_write import read_json_object
from gpubloom.traincard.retry import RetryPolicy
from gpubloom.traincard.sync.delta import DeltaBuilder
from gpubloom.traincard.sync.upload_batch import UploadBatch

logger = logging.getLogger("bloom-agent")

DELIVERED = 0
NOT_DELIVERED = 75
ALREADY_HERE = 76
CANNOT_START = 78

_LONGEST_PAUSE_SECONDS = 30.0
# A promise allows for one failed try and one pause in between.
_PROMISE_BEATS = 3
# While the receiver sleeps, batches are merged: the next one comes after this share of the time that it has
# slept already. So 160 slots last a week, and a machine that is lost loses a twentieth of that time at most.
_MERGED_SHARE = 0.05
_LONGEST_MERGE_SECONDS = 4 * 3600.0
# Of a merged batch. No receiver takes one of more than 128 MiB (`sync.accepted.Limits`).
_MERGED_BYTES = 96 << 20


class Uploader:
    """One attempt on this machine, from its files to its last batch."""

    def __init__(
        self,
        start: Start,
        folders: Folders,
        link: Link,
        clock: Callable[[], float] = time.monotonic,
        report: StartReport | None = None,
    ) -> None:
        self._start, self._folders, self._link = start, folders, link
        self._report = report or StartReport(folders.base / "report", "", link)
        self._clock = clock
        self._files = AgentFiles(folders.run)
        self._outbox = Outbox(folders.post, link, start.mailbox, clock)
        self._delta_builder = DeltaBuilder(folders.run, start.part_bytes, start.every, clock)
        self._control_handler = ControlHandler(folders.run, start.obey, clock)
        self._agent: subprocess.Popen[bytes] | None = None
        self._sent_at, self._looked_at = -1e9, -1e9
        self._failures = 0
        self._grace = 0.0
        # The last batch was full: there is more of the same.
        self._is_full = False

    def run(self) -> int:
        self.prepare()
        self._start_agent()
        signal.signal(signal.SIGTERM, self._pass_on)
        # The training has priority; the upload can wait for it.
        os.nice(10)
        ended_at: float | None = None
        while not self._outbox.is_over:
            ended = not self._is_running()
            if ended and ended_at is None:
                ended_at = self._clock()
            if self.turn(ended):
                break
            if ended_at is not None and self._clock() - ended_at > self._start.deliver:
                logger.error("The rest of the run could not be uploaded in time. It stays on this machine.")
                return NOT_DELIVERED
            time.sleep(self.pause)
        return DELIVERED

    def prepare(self) -> None:
        """Download the job, unless that was done before."""
        self._report.begin("data", f"{len(self._start.files)} files to download")
        known = prepare(self._start, self._folders, self._link)
        size = sum(path.stat().st_size for path in self._folders.base.rglob("*") if path.is_file())
        self._report.done("data", f"{len(self._start.files)} files, {size / 1e6:.1f} MB on the disk")
        if not self._outbox.state:
            self._outbox.begin(DeltaBuilder.first_state(self._folders.run, known))

    @property
    def pause(self) -> float:
        """Seconds until the next turn: longer after each failure, up to a limit."""
        every = self._start.every
        return RetryPolicy(every, max(every, _LONGEST_PAUSE_SECONDS)).pause_after(1 + self._failures)

    def _start_agent(self) -> None:
        spec = self._files.read_job()
        assert spec is not None
        self._grace = spec.stop_grace_seconds
        if is_held(self._files.lock) or self._files.last_attempt() >= spec.attempt:
            return
        # This file, when it is the zipapp; the package, when it is installed.
        here = [sys.argv[0]] if sys.argv[0].endswith(".pyz") else ["-m", "gpubloom.agent"]
        command = [sys.executable, *here, str(self._folders.run), "--start", "remote start"]
        self._report.begin("start", f"Python {sys.version.split()[0]}: {' '.join(spec.command)}")
        self._agent = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self._report.done("start", "the job runs")

    def _is_running(self) -> bool:
        if self._agent is not None and self._agent.poll() is None:
            return True
        if not is_held(self._files.lock):
            return False
        self._control_handler.end_orphan(self._grace)
        return True

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._control_handler.stop()

    def turn(self, ended: bool) -> bool:
        """Send what is new; True after the last batch. A failure is logged, and the next turn tries again."""
        try:
            if self._outbox.wants_mail():
                self._outbox.read_mailbox()
            self._look_at_control()
            if self._outbox.has_batch():
                self._send()
            while self._pack(ended):
                self._send()
                self._look_at_control()
        except (Unavailable, NoSlot, Rejected, OSError) as problem:
            if self._failures == 0:
                logger.warning("Could not upload the run: %s. The run continues. Trying again.", problem)
            self._failures += 1
        else:
            if self._failures:
                logger.info("Uploading the run works again.")
            self._failures = 0
        return self._outbox.is_over

    def _send(self) -> None:
        self._outbox.send()
        self._sent_at = self._clock()

    def _look_at_control(self) -> None:
        if self._clock() - self._looked_at >= self._start.every:
            self._looked_at = self._clock()
            if (content := self._outbox.read_control()) is not None:
                self._control_handler.take(content)
        self._control_handler.signal_if_late()

    def _pack(self, ended: bool) -> bool:
        """Build the next batch; False when there is nothing to send now."""
        if self._outbox.is_over:
            return False
        since = self._clock() - self._sent_at
        is_short, interval = self._outbox.is_short, self._interval()
        if is_short and not ended and not self._is_full and since < interval:
            return False
        room = max(self._start.part_bytes, _MERGED_BYTES) if is_short else self._start.part_bytes
        news = self._delta_builder.pack(
            self._outbox.state, large=ended or self._outbox.takes_large, final=ended, room=room
        )
        self._is_full = news is not None and len(news[1]) >= room // 2
        if news is None and not ended and since < interval:
            return False
        entries, body, state = news or ([], b"", self._outbox.state)
        is_last = ended and news is None
        if is_last:
            entries, body = self._exit_record()
        self._outbox.pack(
            UploadBatch(
                job_id=self._start.job_id,
                attempt=self._start.attempt,
                number=self._outbox.next_number,
                next_in=interval * _PROMISE_BEATS,
                entries=entries,
                body=body,
                ended=is_last,
                tree=self._delta_builder.tree(state) if is_last else {},
            ),
            state,
        )
        return True

    def _interval(self) -> float:
        """Seconds between batches when there is little to send, or few slots to send it with."""
        merged = min(self._outbox.away_seconds * _MERGED_SHARE, _LONGEST_MERGE_SECONDS)
        return max(self._start.beat, merged)

    def _exit_record(self) -> tuple[list[dict[str, object]], bytes]:
        path = self._files.exit(self._start.attempt)
        if not path.exists():
            # The agent was killed; the receiver sees an end without a record.
            return [], b""
        content = path.read_bytes()
        return [{"kind": "whole", "path": f"agent/{path.name}", "size": len(content)}], content


def main(arguments: list[str]) -> int:
    logging.basicConfig(level=logging.INFO, format="[bloom-agent] %(message)s")
    if len(arguments) != 1:
        logger.error("The folder is missing. Usage: bloom-agent.pyz remote FOLDER")
        return CANNOT_START
    base = Path(arguments[0]).absolute()
    report = StartReport(base / "report", "", StoreLink())
    try:
        content = read_json_object(base / "start.json")
        if content is None:
            raise InputError("invalid_start_file", f"There is no start.json in {base}.")
        start = Start.from_json(content)
        held = hold(base / "uploader.lock")
        if held is None:
            return ALREADY_HERE
        report = StartReport.of_machine(base, start.report)
        return Uploader(start, Folders(base), StoreLink(), report=report).run()
    except (Unavailable, Rejected, DamagedError, ValueError, OSError) as problem:
        logger.error("The job cannot be started: %s", problem)
        report.failed("data", *_why_not_started(problem))
        return CANNOT_START


def _why_not_started(problem: Exception) -> tuple[str, str]:
    """A code and a sentence for the owner of the job."""
    if isinstance(problem, Rejected):
        return "address_expired", (
            "The address from which the machine loads the files of the job is no longer valid. Resume the "
            "job: it gets new ones."
        )
    if isinstance(problem, OSError) and problem.errno in {errno.ENOSPC, errno.EDQUOT}:
        return "disk_full", "The disk of the machine is full. Choose an offer with a larger disk."
    return "not_started", f"The agent could not start the job: {problem}"

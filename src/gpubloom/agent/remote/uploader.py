"""`bloom-agent.pyz remote FOLDER`: run the job described in FOLDER/start.json and upload its run directory.

The uploader never trains and never waits for training: the agent that trains is a process of its own, which
goes on when the uploader is killed. Started again, the uploader finds that process, or its exit record, and
goes on.
"""

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
from gpubloom.agent.remote.link import DamagedError, HttpLink, Link, Rejected, Unavailable
from gpubloom.agent.remote.outbox import NoSlot, Outbox
from gpubloom.agent.remote.start import Folders, Start, prepare
from gpubloom.agent.remote.upload_batch import UploadBatch
from gpubloom.errors import InputError
from gpubloom.traincard.atomic_write import read_json_object
from gpubloom.traincard.retry import RetryPolicy
from gpubloom.traincard.sync.delta import DeltaBuilder

logger = logging.getLogger("bloom-agent")

DELIVERED = 0
NOT_DELIVERED = 75
ALREADY_HERE = 76
CANNOT_START = 78

_LONGEST_PAUSE_SECONDS = 30.0
# A promise allows for one failed try and one pause in between.
_PROMISE_BEATS = 3


class Uploader:
    """One attempt on this machine, from its files to its last batch."""

    def __init__(
        self,
        start: Start,
        folders: Folders,
        link: Link,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._start, self._folders, self._link = start, folders, link
        self._clock, self._sleep = clock, sleep
        self._files = AgentFiles(folders.run)
        self._outbox = Outbox(folders.post, link, start.mailbox, clock)
        self._delta_builder = DeltaBuilder(folders.run, start.part_bytes, start.every, clock)
        self._control_handler = ControlHandler(folders.run, start.obey, clock)
        self._agent: subprocess.Popen[bytes] | None = None
        self._sent_at, self._looked_at = -1e9, -1e9
        self._failures = 0
        self._grace = 0.0

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
            self._sleep(self.pause)
        return DELIVERED

    def prepare(self) -> None:
        """Download the job, unless that was done before."""
        known = prepare(self._start, self._folders, self._link, self._sleep)
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
        self._agent = subprocess.Popen(command, stdin=subprocess.DEVNULL)

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
        is_short = self._outbox.is_short
        if is_short and not ended and since < self._start.beat:
            return False
        news = self._delta_builder.pack(self._outbox.state, large=ended or not is_short, final=ended)
        if news is None and not ended and since < self._start.beat:
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
                next_in=self._start.beat * _PROMISE_BEATS,
                entries=entries,
                body=body,
                ended=is_last,
                tree=self._delta_builder.tree(state) if is_last else {},
            ),
            state,
        )
        return True

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
    try:
        content = read_json_object(base / "start.json")
        if content is None:
            raise InputError("invalid_start_file", f"There is no start.json in {base}.")
        start = Start.from_json(content)
        held = hold(base / "courier.lock")
        if held is None:
            return ALREADY_HERE
        return Uploader(start, Folders(base), HttpLink()).run()
    except (Unavailable, Rejected, DamagedError, ValueError, OSError) as problem:
        logger.error("The job cannot be started: %s", problem)
        return CANNOT_START

"""Watches one training process from its start to its end: output, stop requests, limits, and what it leaves.

One thread and one `select`: nothing here can wait for anything but the training process. It knows how to
end a process; when a job should end, others decide.
"""

import contextlib
import os
import selectors
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from gpubloom.agent.file_lock import is_still_at
from gpubloom.agent.output import OutputLog
from gpubloom.agent.processes import children_of
from gpubloom.agent.progress.follower import OutputFollower
from gpubloom.agent.spec import JobSpec, Reason
from gpubloom.agent.training import Training

_LOOK_SECONDS = 1.0
_READ_BYTES = 1 << 18
# A run directory that is gone leaves nothing to save; this is for closing files and freeing the GPU.
_GONE_GRACE_SECONDS = 5.0
# How long the descendants of an ended training process are hunted.
_CLEAN_UP_SECONDS = 5.0

_WHY: dict[Reason, str] = {
    "stopped": "The run was told to stop.",
    "time_limit": "The time limit is reached.",
    "directory_gone": "The run directory no longer exists.",
}


@dataclass(frozen=True)
class End:
    """How the training process ended, and why."""

    code: int | None
    signal: int | None
    reason: Reason


class SignalInbox:
    """Signals to the agent: SIGTERM and Ctrl-C ask to stop, SIGCHLD wakes. `reader` tells of each."""

    def __init__(self) -> None:
        self.stop_requests = 0
        self.reader, writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._ask)
        signal.signal(signal.SIGINT, self._ask)
        signal.signal(signal.SIGCHLD, self._wake)
        # A terminal that closes is no reason to stop training.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def empty(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.reader, 4096)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.stop_requests += 1

    def _wake(self, number: int, frame: FrameType | None) -> None:
        """Needed so that the signal is delivered at all."""


class Supervisor:
    """`held` is the agent's lock and `lock` its path: together they tell whether the run is still there."""

    def __init__(
        self,
        spec: JobSpec,
        training: Training,
        log: OutputLog,
        inbox: SignalInbox,
        held: int,
        lock: Path,
        follower: OutputFollower | None,
    ) -> None:
        self._spec = spec
        self._training = training
        self._log = log
        self._inbox = inbox
        self._held = held
        self._lock = lock
        self._follower = follower
        self._started = time.monotonic()
        self._next_look = self._started + _LOOK_SECONDS
        self._stopping: Reason | None = None
        self._kill_at: float | None = None

    def wait(self) -> End:
        """Returns when the training process and all it started are gone."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._training.output, selectors.EVENT_READ)
            selector.register(self._inbox.reader, selectors.EVENT_READ)
            while not self._training_ended():
                ready = {key.fd for key, _ in selector.select(_LOOK_SECONDS)}
                if self._inbox.reader in ready:
                    self._inbox.empty()
                if self._training.output in ready and not self._read_output():
                    selector.unregister(self._training.output)
                self._decide(time.monotonic())
        # The ended process is not waited for yet, so the number of its group still belongs to nobody else.
        self._kill_group()
        _, status = os.waitpid(self._training.process.pid, 0)
        _end_children(time.monotonic() + _CLEAN_UP_SECONDS)
        self._read_rest()
        code = os.waitstatus_to_exitcode(status)
        return End(code if code >= 0 else None, -code if code < 0 else None, self._stopping or "ended")

    def _training_ended(self) -> bool:
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if found.si_pid == self._training.process.pid:
                return True
            # A descendant that lost its parents and was adopted.
            os.waitpid(found.si_pid, 0)
        return False

    def _decide(self, now: float) -> None:
        if self._stopping is None:
            limit = self._spec.time_limit_seconds
            if self._inbox.stop_requests:
                self._stop("stopped", now)
            elif limit is not None and now - self._started >= limit:
                self._stop("time_limit", now)
        if now >= self._next_look:
            self._next_look = now + _LOOK_SECONDS
            if self._stopping != "directory_gone" and not is_still_at(self._held, self._lock):
                self._stop("directory_gone", now)
        asked_again = self._inbox.stop_requests > (1 if self._stopping == "stopped" else 0)
        if self._kill_at is not None and (now >= self._kill_at or asked_again):
            self._kill_at = None
            self._log.note("The training process did not stop in time and is being killed.")
            self._kill_group()

    def _stop(self, reason: Reason, now: float) -> None:
        already_asked, self._stopping = self._stopping is not None, reason
        grace = _GONE_GRACE_SECONDS if reason == "directory_gone" else self._spec.stop_grace_seconds
        self._kill_at = now + grace
        if not already_asked:
            self._log.note(f"{_WHY[reason]} Stopping the training process.")
            os.kill(self._training.process.pid, signal.SIGTERM)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._training.process.pid, signal.SIGKILL)

    def _read_output(self) -> bool:
        """False at the end of the output: the training process closed it."""
        try:
            data = os.read(self._training.output, _READ_BYTES)
        except BlockingIOError:
            return True
        self._keep(data)
        return bool(data)

    def _keep(self, data: bytes) -> None:
        self._log.write(data)
        if self._follower is not None:
            self._follower.feed(data)

    def _read_rest(self) -> None:
        # What is in the pipe, and no more: nobody is left to write, unless a stranger was given the pipe.
        for _ in range(64):
            try:
                data = os.read(self._training.output, _READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                break
            self._keep(data)
        os.close(self._training.output)


def _end_children(until: float) -> None:
    """Ends what left the training's group, such as the ranks of a launcher, and was adopted by the agent."""
    while (children := children_of(os.getpid())) and time.monotonic() < until:
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # Ending one may hand over its children, so look again.
        for pid in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

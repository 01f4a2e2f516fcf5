"""The Reporter: what a training loop calls.

The calling thread does one append to a bounded queue and goes on; a writer thread does the rest. No call
raises into the loop, and no call waits, except `flush`, `finish` and `close`, which wait for the writer
within a limit.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Mapping
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gpubloom.traincard.control import Control
from gpubloom.traincard.event_queue import DROPPABLE, EventQueue
from gpubloom.traincard.failure import error_fields
from gpubloom.traincard.layout import RunFiles, find_job_dir, find_rank, find_run_dir, find_world_size
from gpubloom.traincard.lock import RunInUseError, RunLock
from gpubloom.traincard.number_encoding import PLAIN_TYPES, keep
from gpubloom.traincard.process_end import ProcessEnd
from gpubloom.traincard.segments import SEGMENT_BYTES
from gpubloom.traincard.telemetry import Telemetry
from gpubloom.traincard.writer import Writer

if TYPE_CHECKING:
    from gpubloom.traincard.adapters.loop import Track
    from gpubloom.traincard.card.page import NotebookCard
    from gpubloom.traincard.mirror import Mirror

logger = logging.getLogger("gpubloom.traincard")

_SIGNAL_SECONDS = 3.0
_CLOSE_SECONDS = 10.0


class Reporter:
    """Records a run in its run directory; see docs/run-directory.md for the files.

    `run_dir`: default BLOOM_RUN_DIR, then the directory of the workflow task (`add_run_dir_finder`), then a
    new ./runs/<time>. `attempt` and `rank`: default from the environment. `lock`: the RunLock, if the trainer
    already holds it. `flush_seconds` and `flush_steps`: maximum interval between writes to the operating
    system. `telemetry_seconds`: interval of telemetry, 0 turns it off. `segment_bytes`: size at which a file
    of events is sealed. `mirror`: address of a bucket folder to mirror the directory to; BLOOM_MIRROR sets
    one for all runs. BLOOM_TRAINCARD=off turns reporting off.

    In a job of the server the events go to the run directory of the job, so that its page shows them, also
    with another `run_dir`: that one is for the files of the script. A second Reporter at the same time
    writes its events to its own directory.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str] | None = None,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        attempt: int | None = None,
        resumed_from_step: int | None = None,
        lock: RunLock | None = None,
        flush_seconds: float = 0.2,
        flush_steps: int | None = None,
        telemetry_seconds: float = 5.0,
        queue_capacity: int = 65_536,
        segment_bytes: int = SEGMENT_BYTES,
        mirror: str | None = None,
    ) -> None:
        environment = os.environ
        self.run_dir, invented = find_run_dir(run_dir, environment)
        self.rank = find_rank(environment) if rank is None else rank
        self.events_dir = self.run_dir
        self._on = False
        self._queue = EventQueue(queue_capacity)
        self._flush_steps = flush_steps
        self._flushed_at = 0
        self._end_status: str | None = None
        self._closing = threading.Lock()
        self._telemetry: Telemetry | None = None
        self._mirror: Mirror | None = None
        self._process_end = ProcessEnd(self)
        if attempt is None and environment.get("BLOOM_ATTEMPT", "").isdecimal():
            attempt = int(environment["BLOOM_ATTEMPT"])
        world_size = find_world_size(environment) if world_size is None else world_size
        # Whoever holds the lock of a directory means that directory.
        job_dir = None if lock is not None else find_job_dir(environment)
        for folder in dict.fromkeys((job_dir or self.run_dir, self.run_dir)):
            self.events_dir = folder
            self._writer = Writer(
                RunFiles(folder),
                self._queue,
                rank=self.rank,
                world_size=world_size,
                attempt=attempt,
                lock=lock,
                interval=flush_seconds,
                segment_bytes=segment_bytes,
            )
            self._on = self._may_report(environment, invented)
            if self._on:
                break
        if self._on and self.events_dir != self.run_dir:
            with contextlib.suppress(OSError):
                self.run_dir.mkdir(parents=True, exist_ok=True)
        self.control = Control(self.events_dir, lambda sentence: self.log(sentence, level="error"))
        if not self._on:
            return
        self._writer.start()
        self._process_end.watch()
        if resumed_from_step is not None:
            self.resumed(resumed_from_step)
        if telemetry_seconds > 0 and environment.get("LOCAL_RANK", "0") == "0":
            self._telemetry = Telemetry(self, telemetry_seconds)
            self._telemetry.start()
        if self.rank == 0 and (mirror or environment.get("BLOOM_MIRROR")):
            from gpubloom.traincard.mirror import start_mirror

            self._mirror = start_mirror(self.events_dir, mirror, environment)

    def _may_report(self, environment: Mapping[str, str], invented: bool) -> bool:
        if environment.get("BLOOM_TRAINCARD", "").lower() == "off":
            return False
        if invented and self.rank > 0:
            logger.warning(
                "Rank %d reports nothing: all ranks need the same run directory. Set BLOOM_RUN_DIR.",
                self.rank,
            )
            return False
        try:
            self._writer.open()
        except RunInUseError as problem:
            if self.events_dir == self.run_dir:
                logger.warning("This process reports nothing: %s", problem)
            return False
        except OSError as problem:
            self._writer.problem(problem)
        return True

    @property
    def is_on(self) -> bool:
        """Whether anything is recorded: not after close, in a forked child, or when turned off."""
        return self._on

    @property
    def attempt(self) -> int | None:
        """Which attempt of the run this is, from 1; None while the run directory cannot be written."""
        return self._writer.attempt

    def metric(self, name: str, value: Any, step: int, tags: Mapping[str, object] | None = None) -> None:
        """Records one value of a series. Numbers of Python or numpy, or a tensor, which is read later."""
        if self._on:
            if type(value) not in PLAIN_TYPES:
                value = keep(value)
            self._queue.put(("metric", time(), step, name, value, dict(tags) if tags else None))
            if self._flush_steps:
                self._flush_after(step)

    def metrics(self, values: Mapping[str, Any], step: int, tags: Mapping[str, object] | None = None) -> None:
        """Records several series of one step at once."""
        if self._on:
            # A copy, because callers like to reuse the dictionary.
            kept = dict(values)
            if not PLAIN_TYPES.issuperset(map(type, kept.values())):
                kept = {name: keep(value) for name, value in kept.items()}
            self._queue.put(("metrics", time(), step, kept, None, dict(tags) if tags else None))
            if self._flush_steps:
                self._flush_after(step)

    def progress(
        self,
        step: int,
        total_steps: int | None = None,
        epoch: float | None = None,
        epochs: float | None = None,
    ) -> None:
        """Record the progress of the run. The remaining time is computed from it."""
        self.event("progress", {"total_steps": total_steps, "epoch": epoch, "epochs": epochs}, step=step)

    def phase(self, name: str) -> None:
        """Set the phase of the run: load, train, eval, save, idle, or another word."""
        self.event("phase", {"phase": name})

    def log(self, line: str, level: str = "info") -> None:
        """Records a line for the log: level info, warning or error."""
        self.event("log", {"line": line, "level": level})

    def system(self, values: Mapping[str, Any]) -> None:
        """Records the state of the machine; nested names are joined with a slash."""
        self.event("system", {"values": dict(values)})

    def describe(self, facts: Mapping[str, Any]) -> None:
        """Record facts about the whole run, such as global_batch_size or the model's name."""
        self.event("describe", {"facts": dict(facts)})

    def heartbeat(self, expect_next_in: float = 60.0) -> None:
        """Report that the loop is alive, and promise the next heartbeat within this many seconds."""
        self.event("heartbeat", {"expect_next_in": expect_next_in})

    def checkpoint(
        self,
        path: str | os.PathLike[str],
        metadata: Mapping[str, Any] | None = None,
        *,
        step: int | None = None,
        metrics: Mapping[str, Any] | None = None,
        best: bool | None = None,
    ) -> None:
        """Records a saved checkpoint. Step, metrics and best may also lie in `metadata`."""
        rest = dict(metadata or {})
        fields = {
            "path": os.fspath(path),
            "metrics": rest.pop("metrics", None) if metrics is None else dict(metrics),
            "best": rest.pop("best", None) if best is None else best,
            "size": rest.pop("size", None),
        }
        found_step = rest.pop("step", None) if step is None else step
        self.event("checkpoint", {**fields, "metadata": rest or None}, step=found_step)

    def checkpoint_removed(self, path: str | os.PathLike[str]) -> None:
        """Record that a checkpoint was deleted, so that it is no longer offered."""
        self.event("checkpoint_removed", {"path": os.fspath(path)})

    def resumed(self, from_step: int) -> None:
        """Records that this attempt continues after `from_step`."""
        self.event("resumed", {"from_step": from_step})

    def applied(self, version: int, refused: Mapping[str, str] | None = None) -> None:
        """Record that a control version is in force; `refused` says why a setting was not applied."""
        self.event("applied", {"version": version, "refused": dict(refused) if refused else None})

    def error(self, problem: BaseException) -> None:
        """Records an exception: type, message, traceback, likely cause."""
        self.event("error", error_fields(problem))

    def event(self, kind: str, fields: Mapping[str, Any], step: int | None = None) -> None:
        """Records an event of any kind; readers that do not know the kind keep it and ignore it."""
        if self._on:
            put = self._queue.put if kind in DROPPABLE else self._queue.put_kept
            put((kind, time(), step, dict(fields), None, None))

    def finish(self, status: str = "completed", message: str | None = None) -> None:
        """Record how the run ended (completed, failed, cancelled, paused, …); waits until it is written."""
        if self._on:
            self._say_end(status, message)
            self._writer.flush(_CLOSE_SECONDS)

    def flush(self, timeout: float = _CLOSE_SECONDS) -> bool:
        """Wait until all reported events are with the operating system; False if that took too long."""
        return self._on and self._writer.flush(timeout)

    def show(self, points: int = 1000) -> "NotebookCard":
        """The run's card as it stands, for the last line of a notebook's cell."""
        from gpubloom.traincard.card.page import NotebookCard

        self.flush()
        return NotebookCard(self.events_dir, points)

    def close(self) -> None:
        """Write what is left and stop. Without an earlier `finish`, the run counts as `ended`."""
        with self._closing:
            if not self._on:
                return
            if self._telemetry is not None:
                self._telemetry.stop()
            if self._end_status is None:
                self._say_end("ended")
            self._on = False
            if not self._writer.close(_CLOSE_SECONDS):
                logger.warning(
                    "TrainCard is still writing to %s; the last events may be missing", self.events_dir
                )
            self._process_end.stop()
            if self._mirror is not None:
                self._mirror.finish()

    def track(self, loader: Iterable[Any], **options: Any) -> "Track":
        """The batches of a hand-written loop, with progress reported and commands applied; see `Track`."""
        from gpubloom.traincard.adapters.loop import Track

        return Track(self, loader, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(problem, SystemExit) and problem.code in {None, 0}:
            problem = None
        if problem is not None:
            self.on_exception(problem)
        elif self._end_status is None and self._on:
            self._say_end("completed")
        self.close()

    def on_sigterm(self) -> None:
        """The machine is taken away, or somebody stops the process."""
        if self._on:
            self._say_end("preempted", "SIGTERM")
            self._writer.flush(_SIGNAL_SECONDS, waits_for_device=False)
            if self._mirror is not None:
                self._mirror.flush(_SIGNAL_SECONDS)

    def on_exception(self, problem: BaseException) -> None:
        """An exception that nobody caught; the same one twice is one."""
        if not self._on or getattr(problem, "_recorded_by", None) == id(self):
            return
        # Noted there, not here: a kept exception would keep its frames, and with them the device's memory.
        with contextlib.suppress(AttributeError):
            problem._recorded_by = id(self)  # type: ignore[attr-defined]
        if isinstance(problem, KeyboardInterrupt):
            self._say_end("interrupted", "Ctrl-C")
        else:
            self.error(problem)
            self._say_end("failed", f"{type(problem).__name__}: {problem}")
        # Does not wait: after a lost rank the device may never finish what it was given.
        self._writer.flush(_SIGNAL_SECONDS, waits_for_device=False)

    def on_exit(self) -> None:
        """The interpreter exits."""
        self.close()

    def on_fork_in_child(self) -> None:
        """A forked child is not this run: it says nothing and holds none of the files."""
        self._on = False
        self._mirror = None
        self._queue = EventQueue(1)
        with contextlib.suppress(OSError):
            self._writer.forget_after_fork()

    def _say_end(self, status: str, message: str | None = None) -> None:
        self._end_status = status
        self.event("end", {"status": status, "message": message})

    def _flush_after(self, step: object) -> None:
        assert self._flush_steps is not None
        # A step that is no number is the writer's to complain about.
        if isinstance(step, int) and not self._flushed_at <= step < self._flushed_at + self._flush_steps:
            self._flushed_at = step
            self._writer.wake()

"""The Reporter: what a training loop calls.

The calling thread does one append to a bounded queue and goes on; a writer thread does the rest. No call
raises into the loop, and no call waits, except `flush`, `finish` and `close`, which wait for the writer
within a limit.
"""

import builtins
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gpubloom.errors import shell_word
from gpubloom.traincard import capture as process_output
from gpubloom.traincard import what_ran as ran
from gpubloom.traincard.control import Control, ControlFile
from gpubloom.traincard.event_queue import DROPPABLE, EventQueue
from gpubloom.traincard.failure import error_fields, error_text
from gpubloom.traincard.findings import Finding
from gpubloom.traincard.layout import RunFiles, find_job_dir, find_rank, find_run_dir, find_world_size
from gpubloom.traincard.lock import RunInUseError, RunLock
from gpubloom.traincard.number_encoding import PLAIN_TYPES, keep
from gpubloom.traincard.process_end import ProcessEnd, watching
from gpubloom.traincard.safe_paths import read_json_beneath
from gpubloom.traincard.segments import SEGMENT_BYTES
from gpubloom.traincard.telemetry import Telemetry
from gpubloom.traincard.writer import Writer

if TYPE_CHECKING:
    from gpubloom.traincard.adapters.loop import Track
    from gpubloom.traincard.alerts import Alerts
    from gpubloom.traincard.card.notebook import NotebookCard
    from gpubloom.traincard.mirror import Mirror
    from gpubloom.traincard.sender import RunSender

logger = logging.getLogger("gpubloom.traincard")

_SIGNAL_SECONDS = 3.0
_CLOSE_SECONDS = 10.0
_LOOKING_SECONDS = 1.0
_ALERT_SECONDS = 10.0


class Reporter:
    """Records a run in its run directory; see docs/run-directory.md for the files.

    `run_dir`: default BLOOM_RUN_DIR, then the directory of the workflow task (`add_run_dir_finder`), then a
    new ./runs/<time>. `attempt` and `rank`: default from the environment. `lock`: the RunLock, if the trainer
    already holds it. `flush_seconds` and `flush_steps`: maximum interval between writes to the operating
    system. `telemetry_seconds`: interval of telemetry, 0 turns it off. `segment_bytes`: size at which a file
    of events is sealed. `mirror`: address of a bucket folder to mirror the directory to; BLOOM_MIRROR sets
    one for all runs. `project`: send the run to this project of the server at BLOOM_SERVER, with BLOOM_TOKEN
    (default BLOOM_PROJECT; not in a job). `capture`: record what the process prints and logs
    (BLOOM_CAPTURE=off; not in a job, whose agent keeps its output). `announce`: print one line at the start
    that says where the run is (BLOOM_ANNOUNCE=off; never in a job). `what_ran`: record commit, command line,
    packages and machine (BLOOM_WHAT_RAN=off). `enabled=False`, or BLOOM_TRAINCARD=off, records nothing.

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
        project: str | None = None,
        capture: bool = True,
        announce: bool = True,
        what_ran: bool = True,
        enabled: bool = True,
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
        # Not while a training of several goes on.
        self._is_over = False
        self._closing = threading.Lock()
        self._telemetry: Telemetry | None = None
        self._mirror: Mirror | None = None
        self._sender: RunSender | None = None
        self._warned: set[str] = set()
        self._looking: threading.Thread | None = None
        self._alerts: Alerts | None = None
        self._process_end = ProcessEnd(self)
        if attempt is None and environment.get("BLOOM_ATTEMPT", "").isdecimal():
            attempt = int(environment["BLOOM_ATTEMPT"])
        world_size = find_world_size(environment) if world_size is None else world_size
        # Whoever holds the lock of a directory means that directory.
        job_dir = None if lock is not None else find_job_dir(environment)
        if enabled and is_interactive():
            self._end_earlier_cell()
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
            self._on = enabled and self._may_report(environment, invented)
            if self._on:
                break
        if self._on and self.events_dir != self.run_dir:
            with contextlib.suppress(OSError):
                self.run_dir.mkdir(parents=True, exist_ok=True)
        self.control = Control(
            self.events_dir,
            lambda sentence: self.log(sentence, level="error"),
            (lambda: self.event("listening", {})) if self.rank == 0 else None,
        )
        if not self._on:
            return
        self._start_alerts(environment, self._train_config() if self.rank == 0 else None)
        self._writer.start()
        self._process_end.watch()
        self._begin(environment, announce=announce, capture=capture, what_ran=what_ran)
        if resumed_from_step is not None:
            self.resumed(resumed_from_step)
        if telemetry_seconds > 0 and environment.get("LOCAL_RANK", "0") == "0":
            self._telemetry = Telemetry(self, telemetry_seconds)
            self._telemetry.start()
        if self.rank == 0:
            self._start_copies(mirror, project, environment)

    def _start_copies(self, mirror: str | None, project: str | None, environment: Mapping[str, str]) -> None:
        """Copies of the run elsewhere, while it happens: in a bucket, on a server."""
        if mirror or environment.get("BLOOM_MIRROR"):
            from gpubloom.traincard.mirror import start_mirror

            self._mirror = start_mirror(self.events_dir, mirror, environment)
        if environment.get("BLOOM_SERVER"):
            from gpubloom.traincard.sender import start_sender

            self._sender = start_sender(self.events_dir, project, environment)

    def _begin(
        self, environment: Mapping[str, str], *, announce: bool, capture: bool, what_ran: bool
    ) -> None:
        if announce and self.rank == 0 and self.attempt is not None:
            self._announce(environment)
        if capture and process_output.is_wanted(self.events_dir, environment):
            process_output.start(self._output)
        if what_ran and self.rank == 0 and environment.get("BLOOM_WHAT_RAN", "").lower() not in {"off", "0"}:
            self._looking = threading.Thread(
                target=self._record_what_ran, name="traincard-what-ran", daemon=True
            )
            self._looking.start()

    def _start_alerts(self, environment: Mapping[str, str], config: object) -> None:
        """By the settings of the process and the rules in a config; once."""
        named = "BLOOM_ALERT_WEBHOOK", "BLOOM_STOP_ON"
        has_rules = isinstance(config, Mapping) and "alerts" in config
        if self.rank != 0 or not (has_rules or any(environment.get(name) for name in named)):
            return
        from gpubloom.errors import InputError
        from gpubloom.traincard.alert_rules import ConfigRules
        from gpubloom.traincard.alerts import Alerts, AlertSettings

        def stop(sentence: str) -> None:
            self.log(sentence, level="warning")
            ControlFile(self.events_dir).want("cancel")

        try:
            # The server follows its jobs, and stops them by the same rules.
            rules = ConfigRules() if environment.get("BLOOM_JOB_ID") else ConfigRules.of(config)
            settings = AlertSettings.from_environment(environment, rules)
        except InputError as problem:
            logger.warning("TrainCard sends no alerts: %s", problem)
            return
        if settings is not None and self._alerts is not None:
            self._alerts.change(settings)
        elif settings is not None:
            self._alerts = Alerts(settings, self.events_dir.name, stop)
            self._writer.on_written = self._alerts.see

    def _train_config(self) -> object:
        """The config of a run of GPU Bloom's own trainer, which lies in its directory."""
        try:
            return read_json_beneath(self.events_dir, "config.json")
        except (OSError, ValueError):
            return None

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
                ours = any(isinstance(o, Reporter) and o.events_dir == self.events_dir for o in watching())
                hint = " Use the Reporter that this process has: HFTrainCardCallback(reporter)."
                logger.warning("This Reporter records nothing: %s%s", problem, hint if ours else "")
            return False
        except OSError as problem:
            self._writer.problem(problem)
        return True

    def _end_earlier_cell(self) -> None:
        """A cell that is run again makes a new Reporter while the old one is still there: a new attempt."""
        for other in watching():
            if isinstance(other, Reporter) and (other.run_dir, other.rank) == (self.run_dir, self.rank):
                other.close()

    def _announce(self, environment: Mapping[str, str]) -> None:
        if environment.get("BLOOM_ANNOUNCE", "").lower() in {"off", "0"} or environment.get("BLOOM_JOB_ID"):
            return
        here, where = Path.cwd(), self.events_dir
        where = where.relative_to(here) if where.is_relative_to(here) else where
        see = "reporter.show()" if is_interactive() else f"bloom runs watch {shell_word(where)}"
        with contextlib.suppress(OSError, ValueError, AttributeError):
            # To the terminal, not to the output of the script, which somebody may read with a program.
            print(f"TrainCard: this run is recorded in {where}. See it live: {see}", file=sys.stderr)  # noqa: T201

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
            kept = self._mapping("metrics", values)
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
        if name == "train":
            self._is_over = False
        self.event("phase", {"phase": name})

    def log(self, line: str, level: str = "info") -> None:
        """Records a line for the log: level info, warning or error."""
        self.event("log", {"line": line, "level": level})

    def finding(self, finding: Finding) -> None:
        """Records something that a person should know, as a warning of the log that says what to do."""
        said = {"kind": finding.kind, "severity": finding.severity, "next_step": finding.next_step}
        self.event("log", {"line": finding.sentence, "level": "warning", "finding": said})

    def system(self, values: Mapping[str, Any]) -> None:
        """Records the state of the machine; nested names are joined with a slash."""
        if kept := self._mapping("system", values):
            self.event("system", {"values": kept})

    def describe(self, facts: Mapping[str, Any]) -> None:
        """Record facts about the whole run, such as global_batch_size or the model's name."""
        if kept := self._mapping("describe", facts):
            self.event("describe", {"facts": kept})

    def config(self, values: Mapping[str, Any], name: str = "config") -> None:
        """Record the whole config of the run under a name; values named like secrets are hidden.

        `alerts` in it holds rules: {"on": ["failed"], "stop_on": ["diverged"]}.
        """
        if self._on and (kept := self._mapping("config", values)):
            self.event(ran.KIND, ran.config_fields(name, kept))
            if "alerts" in kept:
                self._start_alerts(os.environ, kept)

    def dataset(self, name: str, data: Any) -> None:
        """Record which data the run uses: a Hugging Face dataset, or the path of a file or folder."""
        with contextlib.suppress(Exception):
            if self._on and (fields := ran.dataset_fields(name, data)) is not None:
                self.event(ran.KIND, fields)

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
        rest = self._mapping("checkpoint", metadata or {})
        if (where := self._path("checkpoint", path)) is None:
            return
        fields = {
            "path": where,
            "metrics": rest.pop("metrics", None) if metrics is None else self._mapping("checkpoint", metrics),
            "best": rest.pop("best", None) if best is None else best,
            "size": rest.pop("size", None),
        }
        found_step = rest.pop("step", None) if step is None else step
        self.event("checkpoint", {**fields, "metadata": rest or None}, step=found_step)

    def checkpoint_removed(self, path: str | os.PathLike[str]) -> None:
        """Record that a checkpoint was deleted, so that it is no longer offered."""
        if (where := self._path("checkpoint_removed", path)) is not None:
            self.event("checkpoint_removed", {"path": where})

    def sample(self, prompt: str, text: str, step: int) -> None:
        """Records what the model answers to a prompt at a step; step 0 is the model before training."""
        self.event("sample", {"prompt": str(prompt), "text": str(text)}, step=step)

    def resumed(self, from_step: int) -> None:
        """Records that this attempt continues after `from_step`."""
        self.event("resumed", {"from_step": from_step})

    def applied(self, version: int, refused: Mapping[str, str] | None = None) -> None:
        """Record that a control version is in force; `refused` says why a setting was not applied."""
        self.event("applied", {"version": version, "refused": dict(refused) if refused else None})

    def alert(self, title: str, text: str = "", level: str = "warning") -> None:
        """Tells a person: level info, warning or error. It goes to BLOOM_ALERT_WEBHOOK if that is set."""
        self.event("alert", {"title": str(title), "text": str(text), "level": level})

    def error(self, problem: BaseException | str) -> None:
        """Records an exception: type, message, traceback, likely cause; or a sentence about a problem."""
        if isinstance(problem, BaseException):
            self.event("error", error_fields(problem))
        else:
            self.event("error", {"type": "Error", "message": str(problem)})

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

    def show(self, points: int = 1000, seconds: float = 4.0) -> "NotebookCard":
        """Shows the run's card below the notebook's cell, live until the Reporter is closed.

        `seconds`: how often it is brought up to date.
        """
        from gpubloom.traincard.card.notebook import NotebookCard

        self.flush()
        card = NotebookCard(self.events_dir, points, seconds=seconds, is_over=lambda: not self._on)
        card.show()
        return card

    def close(self) -> None:
        """Write what is left and stop. Without an earlier `finish`, the run counts as `ended`."""
        with self._closing:
            if not self._on:
                return
            if self._telemetry is not None:
                self._telemetry.stop()
            if self._looking is not None:
                # A run that ends at once still says what ran.
                self._looking.join(_LOOKING_SECONDS)
            if self._end_status is None:
                self._say_end("ended")
            process_output.stop(self._output)
            self._on = False
            if not self._writer.close(_CLOSE_SECONDS):
                logger.warning(
                    "TrainCard is still writing to %s; the last events may be missing", self.events_dir
                )
            self._process_end.stop()
            if self._alerts is not None:
                self._alerts.finish(_ALERT_SECONDS)
            if self._mirror is not None:
                self._mirror.finish()
            if self._sender is not None:
                self._sender.finish()

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
        """The machine is taken away, or somebody stops the process. A run that had ended stays as it was."""
        if self._on:
            if not self._is_over:
                self._say_end("preempted", "SIGTERM")
            self._writer.flush(_SIGNAL_SECONDS, waits_for_device=False)
            if self._mirror is not None:
                self._mirror.flush(_SIGNAL_SECONDS)
            if self._sender is not None:
                self._sender.flush(_SIGNAL_SECONDS)

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
            self._say_end("failed", f"{type(problem).__name__}: {error_text(problem)}")
        # Does not wait: after a lost rank the device may never finish what it was given.
        self._writer.flush(_SIGNAL_SECONDS, waits_for_device=False)

    def on_exit(self) -> None:
        """The interpreter exits."""
        self.close()

    def on_fork_in_child(self) -> None:
        """A forked child is not this run: it says nothing and holds none of the files."""
        self._on = False
        self._mirror = None
        self._sender = None
        process_output.forget_after_fork()
        self._queue = EventQueue(1)
        with contextlib.suppress(OSError):
            self._writer.forget_after_fork()

    def __reduce__(self) -> tuple[Any, ...]:
        # A flow or a data loader may take it to another process, which is not this run.
        return _silent_copy, (str(self.run_dir), self.rank)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __copy__(self) -> Self:
        return self

    def _record_what_ran(self) -> None:
        try:
            self.event(ran.KIND, ran.look())
        except Exception as problem:  # noqa: BLE001 - an odd machine; the run matters more
            logger.warning("TrainCard could not record what ran: %r", problem)

    def _output(self, source: str, text: str, level: str) -> None:
        if self._on:
            self._queue.put(("output", time(), None, source, text, level))

    def _mapping(self, call: str, given: object) -> dict[Any, Any]:
        try:
            return dict(given)  # type: ignore[call-overload,no-any-return]
        except (TypeError, ValueError):
            self._warn_once(
                call, f"{call}() needs a dictionary, not {type(given).__name__}: nothing is recorded"
            )
            return {}

    def _path(self, call: str, given: Any) -> str | None:
        try:
            return os.fsdecode(given)
        except TypeError:
            self._warn_once(call, f"{call}() needs a path, not {type(given).__name__}: nothing is recorded")
            return None

    def _warn_once(self, call: str, sentence: str) -> None:
        if call not in self._warned:
            self._warned.add(call)
            logger.warning("TrainCard: %s", sentence)

    def _say_end(self, status: str, message: str | None = None) -> None:
        self._end_status, self._is_over = status, True
        self.event("end", {"status": str(status), "message": message})

    def _flush_after(self, step: object) -> None:
        assert self._flush_steps is not None
        # A step that is no number is the writer's to complain about.
        if isinstance(step, int) and not self._flushed_at <= step < self._flushed_at + self._flush_steps:
            self._flushed_at = step
            self._writer.wake()


def _silent_copy(run_dir: str, rank: int) -> Reporter:
    """A Reporter that came through a pickle: it knows its run directory and records nothing."""
    return Reporter(run_dir, rank=rank, enabled=False)


def is_interactive() -> bool:
    """Whether a person runs the code piece by piece: a notebook, or IPython in a terminal."""
    if hasattr(builtins, "__IPYTHON__"):
        return True
    marimo = sys.modules.get("marimo")
    return marimo is not None and bool(getattr(marimo, "running_in_notebook", bool)())

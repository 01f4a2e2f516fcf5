"""Keeps the card of a running step up to date, from a thread of the step's own process.

Every few seconds it reads what is new in the run directory and writes the card's data. It never raises into
the step and never makes it wait: what goes wrong is said once, and tried again at the next turn.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from gpubloom.traincard.card.content import card_content, run_content
from gpubloom.traincard.card.page import render_content
from gpubloom.traincard.failure import error_fields
from gpubloom.traincard.process_end import ProcessEnd
from gpubloom.traincard.reading import Reading
from gpubloom.traincard.snapshot import snapshot
from metaflow_traincard.card_store import LIVE_TOKEN, CardStore
from metaflow_traincard.checkpoint_links import CheckpointLinks
from metaflow_traincard.task_files import TaskFiles

SECONDS = 4.0
# The thread shares the interpreter with the training: points are given up before the loop is held up.
MOST_CPU_SECONDS = 0.005
_EXCHANGE_TURNS = 5
_FEWEST_POINTS, _MOST_POINTS = 40, 200
# As many as are drawn, lowest and highest value of each: what need not be joined need not be drawn anew.
_LIVE_BUCKETS = _MOST_POINTS // 2
_LIVE_LINES = 200
# How long the last state waits for an update that a slow datastore holds up: a machine that is taken away has
# little time, a step that is over has more.
_SIGTERM_SECONDS, _FINISH_SECONDS = 5.0, 30.0

_SILENT = (
    "This step has not reported anything yet. Create a Reporter() in the step, or add a callback to "
    "its trainer."
)


class LiveCard:
    """The card of one task. `store` writes it; without one, `refresh` asks Metaflow to."""

    def __init__(
        self,
        name: str,
        files: TaskFiles,
        store: CardStore | None,
        refresh: Callable[[dict[str, Any]], None],
        warn: Callable[[str], None],
        *,
        retried: bool = False,
        attempt: int = 1,
        seconds: float = SECONDS,
    ) -> None:
        self._name = name
        self._files = files
        self._store = store
        self._refresh = refresh
        self._warn = warn
        self._warned = False
        self._retried = retried
        self._attempt = attempt
        self._links = CheckpointLinks()
        self._earlier: list[str] | None = None
        self._seconds = seconds
        self._points = _MOST_POINTS
        self._reading = Reading(files.run_dir, most_buckets=_LIVE_BUCKETS)
        self._turns = 0
        self._cost: dict[str, float] = {}
        # Reentrant, because SIGTERM may come to the thread that holds it.
        self._busy = threading.RLock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traincard-card", daemon=True)
        self._process_end = ProcessEnd(self)

    def start(self) -> None:
        """Writes the page and begins to keep it up to date."""
        self._turn(page=True)
        self._process_end.watch()
        self._thread.start()

    def finish(self, problem: BaseException | None = None) -> None:
        """The step is over: the last state, in full, on the page and in its data."""
        self._stop.set()
        self._process_end.stop()
        self._turn(page=True, full=True, problem=problem)

    def on_sigterm(self) -> None:
        """The machine is taken away; the Reporters have written that by now."""
        self._turn(page=True, full=True)

    def on_exception(self, problem: BaseException) -> None:
        """Metaflow catches what a step raises and tells the decorator; this is something after it."""

    def on_exit(self) -> None:
        """The step ended the process by itself; Metaflow's hooks know nothing of that."""
        if not self._stop.is_set():
            self.finish()

    def on_fork_in_child(self) -> None:
        """A forked child is not this task."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            self._turn()

    def _turn(self, *, page: bool = False, full: bool = False, problem: BaseException | None = None) -> None:
        if not self._busy.acquire(timeout=_FINISH_SECONDS if self._stop.is_set() else _SIGTERM_SECONDS):
            self._say_once("the card does not show the last state because an earlier update did not finish")
            return
        try:
            # What a finished step said last is written by then, and must not be overwritten by an older look.
            if self._stop.is_set() and not full:
                return
            self._turns += 1
            if full or self._turns % _EXCHANGE_TURNS == 0:
                self._exchange(all_of_it=full)
            began = time.thread_time()
            self._reading.update()
            read = time.thread_time()
            content = self._content(full, problem)
            made = time.thread_time()
            self._write(content, page=page)
            written = time.thread_time()
            self._cost = {"read": read - began, "make": made - read, "write": written - made}
            self._adapt(written - read)
        except Exception as error:  # noqa: BLE001 - no card is worth a training run; the reason is said
            self._say_once(f"the card could not be updated: {type(error).__name__}: {error}")
        finally:
            self._busy.release()

    def _exchange(self, *, all_of_it: bool) -> None:
        try:
            self._files.exchange(all_of_it=all_of_it)
        except Exception as error:  # noqa: BLE001 - the card can still be written; the reason is said
            self._say_once(f"the run's files could not be copied: {type(error).__name__}: {error}")

    def _content(self, full: bool, problem: BaseException | None) -> dict[str, Any]:
        if full:
            # Read anew, in all detail: the step is over, and nobody waits for the interpreter.
            content = run_content(self._files.run_dir, name=self._name)
        else:
            found = snapshot(self._reading, points=self._points, log_lines=_LIVE_LINES)
            content = card_content({**found, "name": self._name})
            # The changes are on the last page: sent every few seconds they would be most of the data.
            content["what_ran"] = {
                **content["what_ran"],
                "git": _without_diff(content["what_ran"].get("git")),
            }
        if not content["ranks"]:
            content["notes"] = [_SILENT]
        elif not full and (content["status"]["attempt"] or 0) < self._attempt:
            announce_restart(content, self._attempt)
        self._links.add_to(content, self._files.run_dir)
        if problem is not None:
            add_failure(content, problem)
        # Said openly: what watching costs the step.
        content["live"] = {
            "updates": self._turns,
            "seconds": self._seconds,
            "points": self._points,
            "last_cpu_milliseconds": {part: round(cost * 1000, 2) for part, cost in self._cost.items()},
        }
        return content

    def _write(self, content: dict[str, Any], *, page: bool) -> None:
        if self._store is None:
            self._refresh(content)
            return
        cards: list[str | None] = [None]
        if self._retried:
            # Whichever of a task's cards is open follows the newest attempt, at every turn.
            self._earlier = self._store.earlier() if self._earlier is None else self._earlier
            cards += self._earlier
        for card in cards:
            if page:
                self._store.save_page(render_content(content, token=LIVE_TOKEN), card)
            self._store.save_data(content, card)

    def _adapt(self, cpu_seconds: float) -> None:
        # Reading costs by what was reported, whatever is drawn of it; the rest costs by points.
        if cpu_seconds > MOST_CPU_SECONDS:
            self._points = max(_FEWEST_POINTS, self._points * 3 // 4)
        elif cpu_seconds < MOST_CPU_SECONDS / 2:
            self._points = min(_MOST_POINTS, self._points * 5 // 4)

    def _say_once(self, sentence: str) -> None:
        if not self._warned:
            self._warned = True
            self._warn(sentence)


def announce_restart(content: dict[str, Any], attempt: int) -> None:
    """The attempt before is over and this one has not reported yet: the card must not say "failed"."""
    content["status"] = {
        **content["status"],
        "status": "running",
        "phase": None,
        "attempt": attempt,
        "restart_count": attempt - 1,
        "eta_seconds": None,
    }
    content["failure"] = None
    content["notes"] = [f"Attempt {attempt} has started and has not reported anything yet."]


def _without_diff(git: dict[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (git or {}).items() if name != "diff"}


def add_failure(content: dict[str, Any], problem: BaseException) -> None:
    """Lets the card say that the step failed, where no Reporter was there to say so."""
    if content["failure"] is not None:
        return
    error = error_fields(problem)
    nodes = content["system"]["nodes"]
    content["status"] = {**content["status"], "status": "failed"}
    content["failure"] = {
        "status": "failed",
        "message": error["message"],
        "type": error["type"],
        "traceback": error["traceback"],
        "cause": error.get("cause"),
        "advice": error.get("advice"),
        "rank": None,
        "attempt": content["status"]["attempt"],
        "t": content["made_at"],
        "step": content["status"]["step"],
        "last_metrics": {metric["name"]: metric["last"] for metric in content["metrics"]},
        "last_system": nodes[0]["last"] if nodes else {},
    }

"""What the owner of a rented job sees of its start: stages with seconds, the last lines, why it failed.

The machine writes its report into the store of the run (`providers.start_report`); a provider may also show
what an instance, or the build of its image, printed. Both are read until the agent sends its first batch.
"""

import time
from collections.abc import Sequence

from gpubloom.providers.base import ProviderError
from gpubloom.providers.cloud import Instance
from gpubloom.providers.start_report import MOST_BYTES, Failure, StartReport, parse_start_report
from gpubloom.server.jobs.summary import StartLine, StartStage, StartState
from gpubloom.server.schema import storable
from gpubloom.storage import StorageError
from gpubloom.storage.layout import JobLayout
from gpubloom.worker.remote_attempt import RemoteAttempt

# A machine whose clock differs by less is taken at its word.
_CLOCKS_AGREE_SECONDS = 5.0
_MOST_LINES = 40
_LONGEST_LINE = 400
_STAGES = ("requested", "machine", "packages", "data", "start")
# Another machine of the same kind may well be fine: such a start is tried once more.
_ANOTHER_MACHINE_MAY_DO = {
    "apt_locked",
    "broken_driver",
    "cuda_unusable",
    "no_driver",
    "restarted",
    "too_few_gpus",
}


class StartProgress:
    """Of one attempt. `timeout_seconds`: how long a machine may be silent before it is terminated."""

    def __init__(self, attempt: RemoteAttempt, timeout_seconds: float) -> None:
        self._attempt = attempt
        self._layout = JobLayout(str(attempt.job.id), attempt.job.attempt)
        self._began = time.time()
        self._rented: float | None = None
        self._seen_running: float | None = None
        self._where = ""
        self._report = StartReport((), ())
        self._console: Sequence[tuple[float, str]] = ()
        self._shift: float | None = None
        self._state = StartState(
            attempt=attempt.job.attempt,
            provider=attempt.job.target,
            began_at=self._began,
            timeout_seconds=timeout_seconds,
        )

    @property
    def failure(self) -> Failure | None:
        """Why the machine cannot run the job, in its own words."""
        return self._report.failure

    @property
    def tries_again(self) -> bool:
        """Whether the same start may succeed on another machine."""
        failure = self.failure
        return (
            failure is not None
            and failure.code in _ANOTHER_MACHINE_MAY_DO
            and self._attempt.job.attempts_without_progress == 0
        )

    async def requested(self) -> None:
        """The provider is being asked for an instance."""
        await self._tell()

    async def look_at_build(self) -> None:
        """While the provider is asked: what it prints of the image that it builds."""
        if await self._read_console():
            await self._tell()

    async def look(self, instance: Instance | None) -> bool:
        """Read what is new; returns whether there was any sign of life. `instance`: if it was seen now."""
        now = time.time()
        if instance is not None and self._rented is None:
            self._rented = now
        if instance is not None:
            if instance.state == "running" and self._seen_running is None:
                self._seen_running = now
            self._where = " in ".join(part for part in (instance.id, instance.region) if part)
        heard = await self._read_report()
        if not self._report.stages and instance is not None:
            heard = await self._read_console() or heard
        await self._tell()
        return heard

    async def fail(self, code: str, sentence: str) -> None:
        """The start has failed for a reason that the machine did not tell."""
        if self._report.failure is None:
            self._report = StartReport(self._report.stages, self._report.lines, Failure(code, sentence))
        await self._tell()

    async def done(self) -> None:
        """The agent has sent its first batch."""
        await self._read_report()
        await self._tell(is_running=True)

    async def _read_report(self) -> bool:
        name = self._layout.start_report
        try:
            content = await self._attempt.in_thread(lambda: self._attempt.store.get(name, most=MOST_BYTES))
        except StorageError:
            # Whoever receives the batches says so.
            return False
        found = parse_start_report(content or b"")
        if found == self._report or not found.stages:
            return False
        if self._shift is None:
            ahead = found.lines[-1].at - time.time()
            self._shift = -ahead if abs(ahead) > _CLOCKS_AGREE_SECONDS else 0.0
        self._report = found
        return True

    async def _read_console(self) -> bool:
        try:
            lines = await self._attempt.instance.console()
        except ProviderError:
            return False
        known = {text for _, text in self._console}
        now = time.time()
        new = [(now, text) for line in lines if (text := storable(line)[:_LONGEST_LINE]) not in known]
        self._console = (*self._console, *new)[-_MOST_LINES:]
        return bool(new)

    async def _tell(self, *, is_running: bool = False) -> None:
        state = self._state.model_copy(
            update={
                "state": self._now(is_running),
                "stages": self._stages(is_running),
                "log": self._lines(),
                "failure_code": None if self.failure is None else self.failure.code,
                "failure": None if self.failure is None else storable(self.failure.sentence),
            }
        )
        if state != self._state:
            self._state = state
            await self._attempt.spending.note_start(state)

    def _now(self, is_running: bool) -> str:
        if self.failure is not None:
            return "failed"
        return "running" if is_running else "starting"

    def _stages(self, is_running: bool) -> list[StartStage]:
        """All five. What a machine did not report was done before what it did report."""
        told = {stage.name: stage for stage in self._report.stages}
        reached = max((_STAGES.index(name) for name in told), default=1 if self._rented else 0)
        stages = []
        for position, name in enumerate(_STAGES):
            stage = told.get(name)  # type: ignore[call-overload]
            if stage is not None:
                ended = stage.ended
                stages.append(
                    StartStage(
                        name=name,
                        state=stage.state,
                        seconds=None if ended is None else max(0.0, ended - stage.began),
                        began_at=stage.began + (self._shift or 0.0),
                        text=storable(stage.text),
                    )
                )
            elif name == "requested":
                stages.append(self._requested())
            elif is_running or position < reached:
                stages.append(StartStage(name=name, state="done"))
            elif self.failure is not None:
                stages.append(StartStage(name=name, state="failed" if position == reached else "waiting"))
            elif name == "machine" and self._rented is not None:
                stages.append(StartStage(name=name, state="running", began_at=self._rented))
            else:
                stages.append(StartStage(name=name, state="waiting"))
        return stages

    def _requested(self) -> StartStage:
        if self._rented is None:
            state = "failed" if self.failure is not None else "running"
            return StartStage(name="requested", state=state, began_at=self._began)
        seconds = max(0.0, self._rented - self._began)
        return StartStage(
            name="requested", state="done", seconds=seconds, began_at=self._began, text=self._where
        )

    def _lines(self) -> list[StartLine]:
        shift = self._shift or 0.0
        lines = [(at, "console", text) for at, text in self._console]
        lines += [(line.at + shift, line.stage, storable(line.text)) for line in self._report.lines]
        newest = sorted(lines, key=lambda line: line[0])[-_MOST_LINES:]
        return [
            StartLine(seconds=round(max(0.0, at - self._began), 1), stage=stage, text=text)
            for at, stage, text in newest
        ]

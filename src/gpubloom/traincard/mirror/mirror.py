"""The mirror's threads: one for what is small and live, one for checkpoints, which may take minutes.

They only read the run directory, so nothing they wait for holds the trainer or its Reporter up. A failure is
one warning; then they try again, less and less often, until it works.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from types import TracebackType
from typing import Self

from gpubloom.errors import shell_word
from gpubloom.traincard.mirror.store import Bucket, MirrorError, first_line
from gpubloom.traincard.mirror.upload import Upload
from gpubloom.traincard.retry import RetryPolicy

logger = logging.getLogger("gpubloom.traincard")

_EVERY_SECONDS = 3.0
_LONGEST_WAIT_SECONDS = 60.0
_FINISH_SECONDS = 15.0


class Mirror:
    """Mirrors `run_dir` to `url` every few seconds until `finish`. MirrorError: no such address."""

    def __init__(
        self, run_dir: str | os.PathLike[str], url: str, *, every_seconds: float = _EVERY_SECONDS
    ) -> None:
        self.run_dir, self.url = Path(run_dir), url
        bucket = Bucket(url)
        self._lanes = [
            _Lane(Upload(self.run_dir, bucket, large=large), url, every_seconds) for large in (False, True)
        ]

    def start(self) -> Self:
        for lane in self._lanes:
            lane.start()
        return self

    def finish(self, timeout: float = _FINISH_SECONDS) -> bool:
        """Stores the rest and stops; False, with a warning, when that took too long or failed."""
        for lane in self._lanes:
            lane.stop()
        deadline = monotonic() + timeout
        for lane in self._lanes:
            lane.join(max(0.0, deadline - monotonic()))
        if all(lane.is_complete for lane in self._lanes):
            return True
        logger.warning(
            "The mirror of %s at %s is not complete. To complete it, run: bloom runs mirror %s %s",
            self.run_dir, self.url, shell_word(self.run_dir), shell_word(self.url),
        )  # fmt: skip
        return False

    def flush(self, timeout: float) -> bool:
        """Upload the small live files now; False if that took too long or failed."""
        return self._lanes[0].pass_now(timeout)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()


class _Lane(threading.Thread):
    def __init__(self, upload: Upload, url: str, every_seconds: float) -> None:
        # A daemon: a bucket that does not answer must not keep a finished training from ending.
        super().__init__(name="traincard-mirror", daemon=True)
        self._upload, self._url = upload, url
        self._pauses = RetryPolicy(every_seconds, _LONGEST_WAIT_SECONDS)
        # What is asked for: an answer to a pass, or None to stop. Its put is safe in a signal handler.
        self._asked: SimpleQueue[SimpleQueue[bool] | None] = SimpleQueue()
        self.is_complete = False

    def stop(self) -> None:
        self._asked.put(None)

    def pass_now(self, timeout: float) -> bool:
        answer: SimpleQueue[bool] = SimpleQueue()
        self._asked.put(answer)
        try:
            return answer.get(timeout=timeout)
        except Empty:
            return False

    def run(self) -> None:
        failures = 0
        while True:
            answer: SimpleQueue[bool] | None = SimpleQueue()
            with contextlib.suppress(Empty):
                answer = self._asked.get(timeout=self._pauses.pause_after(1 + failures))
            is_done = self._pass(final=answer is None, said=failures > 0)
            if answer is None:
                self.is_complete = is_done
                return
            answer.put(is_done)
            failures = 0 if is_done else failures + 1

    def _pass(self, *, final: bool, said: bool) -> bool:
        try:
            self._upload.once(final=final)
        except Exception as problem:  # noqa: BLE001 - obstore's errors have no common base but this one
            if not said:
                logger.warning(
                    "The run cannot be mirrored to %s: %s. Training continues, and the mirror tries again.",
                    self._url,
                    first_line(problem),
                )
            return False
        if said:
            logger.info("Mirroring the run to %s works again", self._url)
        return True


def start_mirror(
    run_dir: str | os.PathLike[str],
    url: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Mirror | None:
    """What a Reporter calls: mirrors to `url`, or to a folder of the run's name in BLOOM_MIRROR.

    None when no mirror is configured, or under an agent, which mirrors its runs itself. Never raises: a
    mirror that cannot be opened is one warning.
    """
    run_dir = Path(run_dir)
    if url is None and (base := environment.get("BLOOM_MIRROR")):
        url = f"{base.rstrip('/')}/{run_dir.absolute().name}"
    if url is None or is_under_agent(run_dir, environment):
        return None
    try:
        return Mirror(run_dir, url).start()
    except MirrorError as problem:
        logger.warning("The run is not mirrored: %s", problem)
        return None


def is_under_agent(run_dir: Path, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether an agent runs this job: it keeps its record in the run directory."""
    return bool(environment.get("BLOOM_AGENT")) or (run_dir / "agent" / "job.json").exists()

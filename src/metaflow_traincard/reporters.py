"""Ends the Reporters that a step left open: most steps create one and never think of it again."""

from pathlib import Path

from gpubloom.traincard import Reporter
from gpubloom.traincard.process_end import watching


def end_reporters(run_dir: Path, problem: BaseException | None) -> None:
    """Finish every Reporter of this process that belongs to the step, with the step's result."""
    for reporter in watching():
        if isinstance(reporter, Reporter) and reporter.run_dir == run_dir:
            reporter.__exit__(None if problem is None else type(problem), problem, None)

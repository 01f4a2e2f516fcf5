"""Whether a folder that a person named is a run, said in one sentence when it is not."""

from pathlib import Path


def must_be_run(run: Path, holds: str = "traincard") -> Path:
    """The folder itself; ValueError when nothing is there, or when it lacks what every run holds."""
    if not run.is_dir():
        raise ValueError(f"There is no folder {run}. Give the run directory that `bloom train` printed.")
    if not (run / holds).exists():
        what = "traincard folder" if holds == "traincard" else holds
        raise ValueError(f"{run} is not a run directory: it has no {what}.")
    return run

"""Makes a job's run directory ready for an attempt, and reads its last line of output. Plain file work."""

import shutil
from pathlib import Path
from typing import Any

import gpubloom
from gpubloom.plan import Plan, TrainConfig, run_files
from gpubloom.server.jobs.logs import read_output
from gpubloom.traincard import ControlFile
from gpubloom.traincard.atomic_write import replace_file

# Lines of the agent's own in the output.
_AGENT_NOTE = "[bloom-agent]"


def prepare_run(run_dir: Path, config: dict[str, Any], plan: dict[str, Any], attempt: int) -> None:
    """Write what was asked for, whatever an earlier attempt left. Called while nothing of the run lives.

    A job that was extended asks for more than its directory says: what was asked before is kept beside it,
    and the finished model makes room for the one to come.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    asked = TrainConfig.model_validate(config)
    existing = run_dir / "config.json"
    if _holds_another(existing, asked):
        shutil.rmtree(run_dir / "model", ignore_errors=True)
        existing.replace(run_dir / f"config.before-{attempt}.json")
    for name, text in run_files(asked, Plan.model_validate(plan), gpubloom.__version__).items():
        # Renamed into place: a link of that name is replaced, not written through.
        replace_file(run_dir / name, text, durable=True)
    # A paused run was told to pause; this attempt is told to run before it can look.
    control = ControlFile(run_dir)
    if control.read().want != "run":
        control.want("run")


def _holds_another(path: Path, asked: TrainConfig) -> bool:
    try:
        return TrainConfig.read(path) != asked
    except (OSError, ValueError):
        # There is none yet, or one that nobody wrote as it is.
        return False


def last_output_line(run_dir: Path) -> str | None:
    """The last words of a training process that said nothing else."""
    lines = read_output(run_dir, after=None, most_lines=50).lines
    own = [line for line in lines if line.strip() and not line.startswith(_AGENT_NOTE)]
    return own[-1] if own else None


def write_control(run_dir: Path, want: str, settings: dict[str, Any], saves: int) -> None:
    """Bring control.json to what the job's row asks for; does nothing when it already says so."""
    control = ControlFile(run_dir)
    now = control.read()
    if any(now.set.get(name) != value for name, value in settings.items()):
        control.set(settings)
    for _ in range(max(0, saves - now.save)):
        control.save()
    if want in {"run", "pause", "cancel"} and now.want != want:
        control.want(want)  # type: ignore[arg-type]

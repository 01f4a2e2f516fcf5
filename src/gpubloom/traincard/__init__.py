"""TrainCard: what a run says while it trains, and what it is told.

    from gpubloom.traincard import Reporter

    with Reporter() as reporter:
        reporter.metric("loss", 1.93, step=10)

Views read with `Reading`, `diagnose` and `snapshot` (docs/traincard.md).

Standard library only, so that any training script can have it. It knows the run directory
(docs/run-directory.md) and nothing of trainers, servers or providers.
"""

from typing import TYPE_CHECKING, Any

from gpubloom.traincard.control import Command, Control, ControlFile
from gpubloom.traincard.diagnosis import Finding, Limits, diagnose
from gpubloom.traincard.layout import RunFiles, add_run_dir_finder
from gpubloom.traincard.lock import RunInUseError, RunLock
from gpubloom.traincard.names import series_name
from gpubloom.traincard.reader import Reader, RunEvent, load_checkpoints, load_latest, read_all
from gpubloom.traincard.reading import Reading, search_log
from gpubloom.traincard.reporter import Reporter
from gpubloom.traincard.series import Curve, Curves, load_curves
from gpubloom.traincard.snapshot import snapshot
from gpubloom.traincard.state import RunState

if TYPE_CHECKING:
    from gpubloom.traincard.interop.wandb_style import define_metric, finish, init, log

__all__ = [
    "Command",
    "Control",
    "ControlFile",
    "Curve",
    "Curves",
    "Finding",
    "Limits",
    "Reader",
    "Reading",
    "Reporter",
    "RunEvent",
    "RunFiles",
    "RunInUseError",
    "RunLock",
    "RunState",
    "add_run_dir_finder",
    "define_metric",
    "diagnose",
    "finish",
    "init",
    "load_checkpoints",
    "load_curves",
    "load_latest",
    "log",
    "read_all",
    "search_log",
    "series_name",
    "snapshot",
]

# For scripts that say `import gpubloom.traincard as wandb`.
_WANDB_STYLE = frozenset(
    {
        *("config", "define_metric", "finish", "init", "log", "run", "summary"),
        *("login", "watch", "unwatch", "save", "log_artifact", "alert"),
        *("Artifact", "Audio", "Histogram", "Html", "Image", "Table", "Video"),
    }
)


def __getattr__(name: str) -> Any:
    if name not in _WANDB_STYLE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gpubloom.traincard.interop import wandb_style

    return getattr(wandb_style, name)

"""TrainCard: what a run says while it trains, and what it is told.

    from gpubloom.traincard import Reporter

    with Reporter() as reporter:
        reporter.metric("loss", 1.93, step=10)

Standard library only, so that any training script can have it. It knows the run directory
(docs/run-directory.md) and nothing of trainers, servers or providers.
"""

from gpubloom.traincard.control import Command, Control, ControlFile
from gpubloom.traincard.layout import RunFiles
from gpubloom.traincard.lock import RunInUseError, RunLock
from gpubloom.traincard.names import series_name
from gpubloom.traincard.reader import Reader, RunEvent, load_checkpoints, load_latest, read_all
from gpubloom.traincard.reporter import Reporter
from gpubloom.traincard.series import Curve, Curves, load_curves
from gpubloom.traincard.state import RunState

__all__ = [
    "Command",
    "Control",
    "ControlFile",
    "Curve",
    "Curves",
    "Reader",
    "Reporter",
    "RunEvent",
    "RunFiles",
    "RunInUseError",
    "RunLock",
    "RunState",
    "load_checkpoints",
    "load_curves",
    "load_latest",
    "read_all",
    "series_name",
]

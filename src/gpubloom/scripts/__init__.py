"""What a person's own script needs, read without running it; notebooks to scripts and back (docs/scripts.md).

Knows Python's syntax and the names of the usual training libraries; no prices, no providers, no torch.
"""

from gpubloom.scripts.detection import detect
from gpubloom.scripts.notebooks import Cell, from_notebook, is_notebook, to_notebook
from gpubloom.scripts.requirements import (
    Confidence,
    Detected,
    Evidence,
    Requirements,
    ScriptCheckpoints,
    ScriptProblem,
)

__all__ = [
    "Cell",
    "Confidence",
    "Detected",
    "Evidence",
    "Requirements",
    "ScriptCheckpoints",
    "ScriptProblem",
    "detect",
    "from_notebook",
    "is_notebook",
    "to_notebook",
]

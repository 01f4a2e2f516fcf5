"""What a person's own script needs, read without running it; notebooks to scripts and back (docs/scripts.md).

Knows Python's syntax and the names of the usual training libraries; no prices, no places, no torch.
"""

from gpubloom.scripts.found import Checkpoints, Confidence, Evidence, Found, Requirements, ScriptProblem

__all__ = [
    "Checkpoints",
    "Confidence",
    "Evidence",
    "Found",
    "Requirements",
    "ScriptProblem",
]

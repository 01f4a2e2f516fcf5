"""What a check finds: each finding has a code for programs and a sentence for people."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """`error`: it cannot be trained. `warning`: it can, but somebody should know. `note`: how it is read."""

    code: str
    severity: Severity
    sentence: str


# How a part of the check says what it found.
Tell = Callable[[str, Severity, str], None]

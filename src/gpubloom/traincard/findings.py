"""A finding: something about a run, its data or its settings that a person should know, in one form.

Diagnosis, the trainer and the check of the data before a start make findings. The card, the terminal, the
API and the web app show them, so all of them say the same: what is wrong and on what that rests, how much it
matters, and what to do next. The title of a kind is written here and nowhere else.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Severity = Literal["critical", "warning", "info"]

_ORDER: dict[str, int] = {"critical": 0, "warning": 1, "info": 2}

TITLES: dict[str, str] = {
    # Diagnosis of a run.
    "stalled": "Stalled",
    "degraded": "Training process problem",
    "diverging": "Diverging",
    "no_learning": "The loss does not fall",
    "overfitting": "Possible overfitting",
    "straggler": "One rank is slow",
    "data_starved": "Waiting for data",
    "throttled": "GPU throttled",
    "out_of_memory_soon": "Memory is running out",
    # Data, before and while it is trained.
    "few_rows_used": "Few rows used",
    "rows_unused": "Rows not used",
    "rows_rejected": "Rows rejected by the chat template",
    "rows_truncated": "Examples truncated",
    "context_beyond_model": "Sequences longer than the model's context",
    "rope_scaled": "Positions are stretched",
    "rows_duplicated": "Duplicate rows",
    "eval_overlap": "Training rows in the validation data",
    "rows_to_check": "Rows to check",
    "columns_unused": "Columns not used",
    "encoding_guessed": "Text encoding guessed",
    "template_replaced": "Chat template replaced",
    "few_steps": "Few steps",
    "not_evaluated": "Not evaluated",
    # Whatever else a run logs as a warning or an error.
    "run_warning": "Warning",
    "run_error": "Error",
}

# About the data of a run: they hold as long as the run is there.
OF_DATA = frozenset(
    {
        "rows_unused",
        "rows_rejected",
        "rows_truncated",
        "rows_to_check",
        "columns_unused",
        "encoding_guessed",
        "template_replaced",
        "few_steps",
        "not_evaluated",
    }
)
# A run with one of these has no best step: what looks best is an accident, or a step on a wrong way.
WITHOUT_BEST = frozenset({"diverging", "few_rows_used", "overfitting"})
_NO_BEST = "No checkpoint of this run is marked as best."


def finding_title(kind: str) -> str:
    """The title of a kind; a kind of another version is written as it is named."""
    return TITLES.get(kind) or kind.replace("_", " ").capitalize()


@dataclass(frozen=True, slots=True)
class Finding:
    """`sentence`: what is wrong, with its figures. `next_step`: what to do about it, or empty.

    `since`: seconds since 1970, or None when nobody knows.
    """

    kind: str
    severity: Severity
    sentence: str
    evidence: dict[str, Any] = field(default_factory=dict)
    since: float | None = None
    next_step: str = ""

    @property
    def title(self) -> str:
        return finding_title(self.kind)

    @property
    def text(self) -> str:
        """The sentence and the next step, for a terminal."""
        return f"{self.sentence} {self.next_step}".rstrip()

    def as_dict(self) -> dict[str, Any]:
        """The finding as JSON holds it."""
        return {**asdict(self), "title": self.title}


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Critical ones first; those of one severity keep their order."""
    return sorted(findings, key=lambda finding: _ORDER[finding.severity])


def saying_no_best(finding: Finding) -> Finding:
    """The same finding; where it takes the best checkpoint from a run, its next step says so."""
    if finding.kind not in WITHOUT_BEST:
        return finding
    return replace(finding, next_step=f"{finding.next_step} {_NO_BEST}".lstrip())


def has_no_best(kinds: Iterable[str]) -> bool:
    """Whether findings of these kinds forbid to call any step of their run the best."""
    return not WITHOUT_BEST.isdisjoint(kinds)

"""What a page asks of one run: whether it improved, its samples, and what ran.

What a script wrote into its events is checked here: fields of another type are left out, and texts stay
texts. Nothing here needs a database: `bloom ui` starts without one.
"""

from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue

from gpubloom.server.schema import Schema, storable
from gpubloom.traincard.improvement import Improvement, Verdict
from gpubloom.traincard.number_encoding import finite_or_none, plain
from gpubloom.traincard.samples import load_samples
from gpubloom.traincard.what_ran import load_what_ran

_MOST_CHARACTERS = 256 * 1024
_MOST_ENTRIES = 2_000


class EvaluatedStepOut(Schema):
    """One evaluation."""

    step: int = Field(description="0 is the base model.")
    loss: float


class ImprovementOut(Schema):
    """Whether the eval loss of a run fell, and how sure that is."""

    verdict: Verdict
    text: str = Field(description="The verdict in words, such as: No clear change.")
    first: EvaluatedStepOut = Field(description="The first evaluation.")
    lowest: EvaluatedStepOut
    latest: EvaluatedStepOut = Field(description="The last evaluation with a finite loss.")
    not_finite_since: int | None = Field(
        description="The step from which on the eval loss was NaN or infinite, if it is."
    )
    compared: EvaluatedStepOut = Field(description="What the change is measured at.")
    change: float = Field(description="Eval loss minus the first one.")
    low: float | None = Field(description="Lower end of the 95 % interval of the change, if known.")
    high: float | None = Field(description="Upper end of the 95 % interval of the change, if known.")
    has_best: bool = Field(description="Whether the lowest step may be called the best one.")
    interval: str | None = Field(description="The change and its interval in words.")
    line: str = Field(description="The answer in one line.")


class JobImprovement(Schema):
    """The answer for a job. None: it was not evaluated."""

    improvement: ImprovementOut | None

    @classmethod
    def of(cls, found: Improvement | None) -> "JobImprovement":
        return cls(improvement=None if found is None else ImprovementOut.model_validate(found.as_dict()))


class SampleAnswer(Schema):
    """What the model answers at one step."""

    step: int = Field(description="0 is the model before training.")
    text: str


class PromptSamples(Schema):
    """One prompt and its answers, from the first step on."""

    prompt: str
    answers: list[SampleAnswer]


class JobSamples(Schema):
    """The samples of a job. Of many steps some are left out: the first and the last are kept."""

    items: list[PromptSamples]


def samples_of(run_dir: Path) -> JobSamples:
    """The samples in a run directory."""
    try:
        found = load_samples(run_dir)
    except (OSError, ValueError, RecursionError):
        # A file that no Reporter writes.
        return JobSamples(items=[])
    return JobSamples(
        items=[
            PromptSamples(
                prompt=storable(each["prompt"]),
                answers=[
                    SampleAnswer(step=answer["step"], text=storable(answer["text"]))
                    for answer in each["answers"]
                ],
            )
            for each in found
        ]
    )


class GitState(Schema):
    """The checkout that the script ran in."""

    commit: str
    branch: str | None = None
    remote: str | None = None
    changed: bool = Field(False, description="Whether files differed from the commit.")
    untracked: list[str] = Field([], description="Files that git does not know; names only.")
    diff: str | None = Field(None, description="Changes since the commit; cut if long.")
    diff_characters_left_out: int = 0


class DatasetUsed(Schema):
    """A dataset that the run used."""

    name: str
    fingerprint: str | None = None
    rows: int | None = None
    path: str | None = None
    source: str | None = None
    split: str | None = None


class WhatRan(Schema):
    """What a run recorded about itself at its start. Parts that nobody recorded are empty."""

    command: list[str] = Field([], description="The command line, without secrets.")
    folder: str | None = Field(None, description="The working directory.")
    git: GitState | None = None
    machine: dict[str, JsonValue] = Field({}, description="Host, system, Python, CPU, memory.")
    packages: dict[str, str] = Field({}, description="Installed packages and their versions.")
    configs: dict[str, JsonValue] = Field({}, description="Configs by name, such as TrainingArguments.")
    datasets: list[DatasetUsed] = Field([])


def what_ran_of(run_dir: Path) -> WhatRan:
    """What a run directory says about what ran."""
    try:
        # No NaN and no half of a character pair: neither can be sent as JSON.
        return _checked(plain(load_what_ran(run_dir), number=finite_or_none, text=_sendable))
    except (OSError, ValueError, RecursionError):
        # A file that no Reporter writes. pydantic's errors are ValueErrors: it counts the depth, and how much
        # of the stack it has depends on the caller.
        return WhatRan()


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _checked(found: dict[str, Any]) -> WhatRan:
    git, machine = _mapping(found.get("git")), _mapping(found.get("machine"))
    commit = _text(git.get("commit"))
    return WhatRan(
        command=_texts(found.get("command")),
        folder=_text(found.get("folder")),
        git=None
        if commit is None
        else GitState(
            commit=commit,
            branch=_text(git.get("branch")),
            remote=_text(git.get("remote")),
            changed=git.get("changed") is True,
            untracked=_texts(git.get("untracked")),
            diff=_text(git.get("diff")),
            diff_characters_left_out=_count(git.get("diff_characters_left_out")) or 0,
        ),
        machine={name: value for name, value in machine.items() if isinstance(value, (str, int, float))},
        packages={name: str(value) for name, value in _mapping(found.get("packages")).items()},
        configs=_mapping(found.get("configs")),
        datasets=[_dataset(entry) for entry in found.get("datasets") or [] if isinstance(entry, dict)],
    )


def _dataset(entry: dict[str, Any]) -> DatasetUsed:
    texts = {name: _text(entry.get(name)) for name in ("fingerprint", "path", "source", "split")}
    return DatasetUsed(name=str(entry.get("name"))[:200], rows=_count(entry.get("rows")), **texts)


def _mapping(value: object) -> dict[str, Any]:
    return dict(list(value.items())[:_MOST_ENTRIES]) if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value[:_MOST_CHARACTERS] if isinstance(value, str) else None


def _texts(value: object) -> list[str]:
    return (
        [one[:_MOST_CHARACTERS] for one in value if isinstance(one, str)] if isinstance(value, list) else []
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else None

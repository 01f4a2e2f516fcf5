"""What a rented machine reported of its start: stages with their times, the last lines, why it failed.

The report is lines `TIME STAGE MARK TEXT`, written by `bootstrap.sh` and the agent. A machine is not trusted:
a line that does not fit is left out, and what is shown has limits.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

StageName = Literal["machine", "packages", "data", "start"]
StageState = Literal["running", "done", "failed"]
# Why a start failed; what a machine says beside these is `start_failed`. docs/providers.md explains them.
FailureCode = Literal[
    "address_expired",
    "agent_silent",
    "apt_locked",
    "broken_driver",
    "cuda_unusable",
    "disk_full",
    "no_driver",
    "no_python",
    "not_started",
    "old_driver",
    "restarted",
    "start_failed",
    "too_few_gpus",
]

# No report of a start is larger; what is beyond is not read.
MOST_BYTES = 128 << 10
_LINE = re.compile(
    rf"(?P<at>\d{{9,11}}) (?P<stage>{'|'.join(get_args(StageName))}) (?P<mark>[-+.!]) (?P<text>.*)"
)
_CODE = re.compile(r"(?P<code>[a-z][a-z_]{2,39}) (?P<sentence>\S.*)")
_LONGEST_TEXT = 400
_MOST_LINES = 40


@dataclass(frozen=True)
class Stage:
    """`began` and `ended` are seconds since 1970 by the machine's clock."""

    name: StageName
    state: StageState
    began: float
    ended: float | None
    text: str


@dataclass(frozen=True)
class Line:
    at: float
    stage: StageName
    text: str


@dataclass(frozen=True)
class Failure:
    code: str
    sentence: str


@dataclass(frozen=True)
class StartReport:
    stages: Sequence[Stage]
    lines: Sequence[Line]
    failure: Failure | None = None

    @property
    def is_over(self) -> bool:
        """Whether the job runs."""
        return any(stage.name == "start" and stage.state == "done" for stage in self.stages)


def parse_start_report(content: bytes) -> StartReport:
    """The newest lines are kept; a stage begins once."""
    stages: dict[StageName, Stage] = {}
    lines: list[Line] = []
    failure: Failure | None = None
    for row in content[-MOST_BYTES:].decode("utf-8", "replace").splitlines():
        found = _LINE.fullmatch(row)
        if found is None:
            continue
        at, name, text = float(found["at"]), _stage_name(found["stage"]), _shown(found["text"])
        mark = found["mark"]
        # Why a stage failed is told as the failure of the start.
        stage = stages.get(name) or Stage(name, "running", at, None, "" if mark == "!" else text)
        match mark:
            case "-":
                stage = replace(stage, state="done", ended=at, text=text)
            case "!":
                stage = replace(stage, state="failed", ended=at)
                told = _CODE.fullmatch(text)
                is_known = told is not None and told["code"] in get_args(FailureCode)
                failure = (
                    Failure(told["code"], told["sentence"])
                    if told and is_known
                    else Failure("start_failed", text)
                )
                text = failure.sentence
        stages[name] = stage
        lines.append(Line(at, name, text))
    return StartReport(tuple(stages.values()), tuple(lines[-_MOST_LINES:]), failure)


def _stage_name(text: str) -> StageName:
    return next(name for name in get_args(StageName) if name == text)


def _shown(text: str) -> str:
    """Without control characters, which a terminal would obey."""
    return "".join(each if each.isprintable() else " " for each in text)[:_LONGEST_TEXT].strip()

"""The input of an agent (`JobSpec`) and its final record (`ExitRecord`), as JSON."""

import json
import signal
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, get_args

from gpubloom.errors import InputError
from gpubloom.traincard.failure import cause_of_signal

SPEC_VERSION = 1

# ended: by itself (or by somebody else's signal). stopped: the agent was asked to stop it. time_limit: it ran
# for as long as it was allowed to. directory_gone: the run directory was deleted or moved under it.
# not_started: there never was a training process.
Reason = Literal["ended", "stopped", "time_limit", "directory_gone", "not_started"]


@dataclass(frozen=True)
class JobSpec:
    """One attempt of one job: a command to run in a run directory.

    `environment` is added to what the agent inherits. `stop_grace_seconds`: how long a training process that
    was asked to stop may take to save its checkpoint before it is killed. `folder`: where inside the run
    directory the command runs. `note`: what the log should say about this attempt. `total_steps`: how many
    the script is expected to take; it need not print that. `confinement`: the sandbox of the command, as
    `gpubloom.sandbox` reads it; `launcher`: the command that runs the job in it. `has_reporter`: the command
    writes the events of the run itself, and may have put anything in their place. `secrets`: names of further
    variables; their values come apart from the job file (`AgentFiles.take_secrets`).
    """

    job_id: str
    run_dir: Path
    attempt: int
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    output_limit_bytes: int = 64 << 20
    time_limit_seconds: float | None = None
    stop_grace_seconds: float = 300.0
    folder: str = ""
    note: str = ""
    total_steps: int | None = None
    confinement: Mapping[str, Any] | None = None
    launcher: tuple[str, ...] = ()
    has_reporter: bool = False
    secrets: tuple[str, ...] = ()
    v: int = SPEC_VERSION

    def __post_init__(self) -> None:
        if self.v > SPEC_VERSION:
            raise InputError(
                "newer_version",
                f"The job file has version {self.v}, but this agent reads only up to version "
                f"{SPEC_VERSION}. Install a newer gpubloom.",
            )
        if not self.command:
            raise InputError("invalid_job", "The job file has no command to run. Submit the job again.")
        if self.attempt < 1:
            raise InputError("invalid_job", f"The attempt number must be at least 1, not {self.attempt}.")
        if not self.run_dir.is_absolute():
            raise InputError(
                "invalid_job", f"The run directory must be an absolute path, not {self.run_dir}."
            )
        if Path(self.folder).is_absolute() or ".." in Path(self.folder).parts:
            raise InputError(
                "invalid_job",
                f"The working directory of the command must be inside the run directory, not {self.folder}.",
            )

    @property
    def working_folder(self) -> Path:
        """Where the command runs."""
        return self.run_dir / self.folder

    def to_json(self) -> str:
        content = {**asdict(self), "run_dir": str(self.run_dir), "command": list(self.command)}
        return json.dumps(content, indent=1) + "\n"

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """ValueError with a sentence when something is missing or of the wrong kind."""
        try:
            limit = content.get("time_limit_seconds")
            return cls(
                v=int(content["v"]),
                job_id=str(content["job_id"]),
                run_dir=Path(content["run_dir"]),
                attempt=int(content["attempt"]),
                command=tuple(str(part) for part in content["command"]),
                environment={str(name): str(value) for name, value in content["environment"].items()},
                output_limit_bytes=int(content["output_limit_bytes"]),
                time_limit_seconds=None if limit is None else float(limit),
                stop_grace_seconds=float(content["stop_grace_seconds"]),
                folder=str(content.get("folder", "")),
                note=str(content.get("note", "")),
                total_steps=None if content.get("total_steps") is None else int(content["total_steps"]),
                confinement=content.get("confinement"),
                launcher=tuple(str(part) for part in content.get("launcher") or ()),
                has_reporter=content.get("has_reporter") is True,
                secrets=tuple(str(name) for name in content.get("secrets") or ()),
            )
        except (KeyError, TypeError, AttributeError) as problem:
            raise InputError(
                "invalid_job",
                f"job.json does not describe a job: {type(problem).__name__} at {problem}. Submit the "
                "job again.",
            ) from problem


@dataclass(frozen=True)
class ExitRecord:
    """How an attempt ended: an exit code, or the signal that ended it, or neither when it never started."""

    attempt: int
    code: int | None
    signal: int | None
    reason: Reason
    started_at: float
    ended_at: float
    output_dropped_bytes: int
    # Only of not_started: why.
    problem: str | None = None
    # Processes that the kernel ended for lack of memory meanwhile; None: the machine does not say.
    oom_kills: int | None = None

    @property
    def sentence(self) -> str:
        """What happened, for people."""
        end = _end_in_words(self.code, self.signal, self.oom_kills)
        match self.reason:
            case "ended":
                return f"The training process {end}."
            case "stopped":
                return f"The training process was told to stop and {end}."
            case "time_limit":
                return f"The time limit was reached; the training process {end}."
            case "directory_gone":
                return "The run directory no longer exists, so the training process was stopped."
            case "not_started":
                return f"The training process could not be started: {self.problem}"

    def to_json(self) -> str:
        return json.dumps({"v": SPEC_VERSION, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """ValueError when it is no exit record. Another machine may have written it."""
        if not isinstance(content, Mapping):
            raise InputError("damaged_record", "the exit record is damaged: it is not an object")
        fields: dict[str, Any] = {name: content.get(name) for name in _EXIT_FIELDS}
        for name, value in fields.items():
            if not _EXIT_FIELDS[name](value):
                raise InputError("damaged_record", f"the exit record is damaged: {name} is not valid")
        return cls(**fields)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 53


def _is_status(value: object) -> bool:
    return value is None or (type(value) is int and abs(value) < 1 << 31)


def _is_moment(value: object) -> bool:
    # Until the year 5138, so that no arithmetic with it fails.
    return type(value) in {int, float} and 0 <= value < 1e11  # type: ignore[operator]


_EXIT_FIELDS: dict[str, Callable[[Any], bool]] = {
    "attempt": _is_count,
    "code": _is_status,
    "signal": _is_status,
    "reason": lambda value: value in get_args(Reason),
    "started_at": _is_moment,
    "ended_at": _is_moment,
    "output_dropped_bytes": _is_count,
    "problem": lambda value: value is None or isinstance(value, str),
    "oom_kills": lambda value: value is None or _is_count(value),
}


def _end_in_words(code: int | None, number: int | None, oom_kills: int | None) -> str:
    if number is not None:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        cause = cause_of_signal(number, oom_kills=oom_kills)
        return f"was ended by {name}" + (f" ({cause.title})" if cause else "")
    return f"ended with exit code {code}"

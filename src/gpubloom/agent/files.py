"""The agent's files in a run directory: what to do, who does it, how it ended."""

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from gpubloom.agent.processes import Process
from gpubloom.agent.spec import SPEC_VERSION, ExitRecord, JobSpec
from gpubloom.errors import InputError
from gpubloom.traincard.atomic_write import read_json_object, replace_file

# An exit record is well below this; the file is written in full beforehand, so that a full disk cannot keep
# an attempt from saying how it ended.
_RESERVED_BYTES = 4096


@dataclass(frozen=True)
class AgentRecord:
    """Who runs an attempt: the agent, and the process group of the training process it started.

    `start` says how: "warm", or "plain" and why.
    """

    agent: Process
    training: Process
    attempt: int
    started_at: float
    host: str
    start: str

    @property
    def group(self) -> int:
        """The training process leads its own group, so the group's number is its process id."""
        return self.training.pid

    @classmethod
    def of_this_process(cls, training: Process, attempt: int, start: str) -> Self:
        return cls(Process.this(), training, attempt, time.time(), socket.gethostname(), start)

    def to_json(self) -> str:
        content = {
            "v": SPEC_VERSION,
            "pid": self.agent.pid,
            "group": self.group,
            "attempt": self.attempt,
            "started_at": self.started_at,
            "host": self.host,
            "start": self.start,
            # Process ids are used again; together with these a process is meant for good.
            "pid_start_ticks": self.agent.start_ticks,
            "group_start_ticks": self.training.start_ticks,
        }
        return json.dumps(content, indent=1) + "\n"

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        try:
            return cls(
                agent=Process(int(content["pid"]), int(content["pid_start_ticks"])),
                training=Process(int(content["group"]), int(content["group_start_ticks"])),
                attempt=int(content["attempt"]),
                started_at=float(content["started_at"]),
                host=str(content["host"]),
                start=str(content["start"]),
            )
        except (KeyError, TypeError) as problem:
            raise InputError(
                "damaged_record", f"the agent record is damaged: {type(problem).__name__} at {problem}"
            ) from problem


class AgentFiles:
    """The files under `<run>/agent`, and the log beside it. Reading a damaged file raises ValueError."""

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self.run_dir = Path(run_dir)
        self.folder = self.run_dir / "agent"
        self.job = self.folder / "job.json"
        self.secrets = self.folder / "secrets.json"
        self.lock = self.folder / "lock"
        self.agent = self.folder / "agent.json"
        self.messages = self.folder / "agent.log"
        self.output = self.run_dir / "logs" / "output.log"

    def exit(self, attempt: int) -> Path:
        return self.folder / f"exit-{attempt}.json"

    def create_folder(self) -> None:
        """Only for its owner: a job's environment may hold what others should not read."""
        self.folder.mkdir(mode=0o700, exist_ok=True)

    def write_job(self, spec: JobSpec) -> None:
        self.create_folder()
        replace_file(self.job, spec.to_json(), durable=True)

    def write_secrets(self, values: Mapping[str, str]) -> None:
        """For the agent that starts next, which removes the file."""
        self.create_folder()
        self.secrets.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(self.secrets, flags, 0o600), "w", encoding="utf-8") as file:
            json.dump(dict(values), file)

    def take_secrets(self) -> dict[str, str]:
        """The values of the job's secrets. They are gone from the disk before the job begins."""
        content = read_json_object(self.secrets)
        self.secrets.unlink(missing_ok=True)
        return {str(name): str(value) for name, value in (content or {}).items()}

    def read_job(self) -> JobSpec | None:
        content = read_json_object(self.job)
        return None if content is None else JobSpec.from_json(content)

    def write_agent(self, record: AgentRecord) -> None:
        replace_file(self.agent, record.to_json())

    def read_agent(self) -> AgentRecord | None:
        content = read_json_object(self.agent)
        return None if content is None else AgentRecord.from_json(content)

    def read_exit(self, attempt: int) -> ExitRecord | None:
        content = read_json_object(self.exit(attempt))
        return None if content is None else ExitRecord.from_json(content)

    def last_attempt(self) -> int:
        """The newest attempt that was ever started here; 0 when none was."""
        try:
            agent = self.read_agent()
        except ValueError:
            # A damaged disk. The Reporter's own claims still keep attempts apart.
            agent = None
        attempts = [int(path.stem.removeprefix("exit-")) for path in self.folder.glob("exit-[0-9]*.json")]
        return max([0, *attempts, *([agent.attempt] if agent else [])])

    def reserve_exit(self, attempt: int) -> "ReservedExit":
        return ReservedExit(self.exit(attempt))


class ReservedExit:
    """Room on the disk for an exit record, taken while there is some."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reserved = path.with_name(f".{path.name}.reserved")
        self._reserved.write_bytes(b" " * _RESERVED_BYTES)

    def write(self, record: ExitRecord) -> None:
        """Puts the record in place, whole and durable."""
        text = record.to_json().encode()
        with self._reserved.open("r+b") as file:
            # JSON may end in blanks; cutting the file only after the rewrite never needs new room.
            file.write(text.ljust(_RESERVED_BYTES))
            file.flush()
            os.fsync(file.fileno())
            file.truncate(len(text))
        self._reserved.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

"""Runs for tests: a directory, a small script in it, and a real agent."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from gpubloom.agent import AgentFiles, AgentRecord, ExitRecord, JobSpec
from gpubloom.agent.file_lock import is_held
from tests.waiting import TIMEOUT_SECONDS, wait_until


class Run:
    """A run directory whose train.py is a few lines of plain Python."""

    def __init__(self, folder: Path, script: str = "") -> None:
        folder.mkdir(parents=True)
        self.path = folder
        self.files = AgentFiles(folder)
        self.spec = JobSpec("job-1", folder, 1, (sys.executable, "-S", "train.py"), stop_grace_seconds=20)
        self.script(script)

    def script(self, text: str) -> None:
        (self.path / "train.py").write_text(text)

    def attempt(self, number: int) -> JobSpec:
        return replace(self.spec, attempt=number)

    def start_agent(self, *options: str, **popen: object) -> "subprocess.Popen[bytes]":
        """An agent in the foreground of its own process, from the sources."""
        self.files.write_job(self.spec)
        command = [sys.executable, "-m", "gpubloom.agent", str(self.path), *options]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL, **popen)  # type: ignore[call-overload,no-any-return]

    def run_agent(self, *options: str, **popen: object) -> ExitRecord:
        with self.start_agent(*options, **popen) as agent:
            assert agent.wait(TIMEOUT_SECONDS) == 0
        return self.exit(self.spec.attempt)

    def exit(self, attempt: int = 1) -> ExitRecord:
        found = self.files.read_exit(attempt)
        assert found is not None, self.output()
        return found

    @property
    def agent(self) -> AgentRecord:
        found = self.files.read_agent()
        assert found is not None
        return found

    def output(self) -> str:
        return self.files.output.read_text(errors="replace") if self.files.output.exists() else ""

    def wait_for_output(self, text: str) -> None:
        wait_until(lambda: text in self.output(), f"{text!r} in the output")

    def wait_until_free(self) -> None:
        wait_until(lambda: not is_held(self.files.lock), "the run to be free")

    def said(self, name: str) -> object:
        """What the script wrote to a JSON file of this name in its run directory."""
        return json.loads((self.path / name).read_text())

    def clean_up(self) -> None:
        """Ends what a failed test left: only processes of this run, and only while they are those."""
        if (record := self.files.read_agent()) is not None:
            for process in (record.training, record.agent):
                if process.lives:
                    os.kill(process.pid, 9)

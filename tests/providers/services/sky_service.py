"""SkyPilot as our bridge finds it: a Python of its own, with a fake in it that really runs tasks."""

import json
import shutil
import sys
import tempfile
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import psutil

Trouble = Literal[
    "no_capacity", "quota", "nowhere", "queued", "bad_credentials", "unavailable", "hang", "cut"
]


class SkyService:
    """`with SkyService() as service:` then `service.python` is what BLOOM_SKYPILOT_PYTHON should be."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sky-")
        self.folder = Path(self._folder.name)
        self.mark = uuid.uuid4().hex
        for name in ("requests", "clusters", "gone", "troubles"):
            (self.folder / name).mkdir()
        self.offer(["runpod", "lambda"], {})
        fake = Path(__file__).with_name("fake_sky")
        self.python = str(self.folder / "python")
        Path(self.python).write_text(
            f"#!/bin/sh\nexport PYTHONPATH='{fake}' FAKE_SKY='{self.folder}' "
            f"FAKE_SKY_MARK={self.mark} PYTHONDONTWRITEBYTECODE=1\n"
            f"exec '{sys.executable}' \"$@\"\n"
        )
        Path(self.python).chmod(0o700)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_all()
        self._folder.cleanup()

    def offer(self, clouds: list[str], accelerators: dict[str, list[dict[str, Any]]]) -> None:
        (self.folder / "clouds").write_text(json.dumps(clouds))
        (self.folder / "accelerators").write_text(json.dumps(accelerators))

    def fail_next(self, trouble: Trouble, calls: str = "launch") -> None:
        (self.folder / "troubles" / calls).write_text(trouble)

    def preempt(self, name: str, *, seen: bool) -> None:
        """Its cloud takes a machine away. `seen`: SkyPilot still has it, as unhealthy; else it forgot it."""
        self.end_all()
        if seen:
            (self.folder / "clusters" / name / "unhealthy").touch()
        else:
            shutil.rmtree(self.folder / "clusters" / name)

    @property
    def running(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "clusters").iterdir())

    def asked(self, call: str) -> list[dict[str, Any]]:
        lines = (self.folder / "asked.jsonl").read_text().splitlines()
        return [question for line in lines if (question := json.loads(line))["call"] == call]

    def end_all(self) -> None:
        for process in psutil.process_iter():
            try:
                if process.environ().get("RENTED_MACHINE") == self.mark:
                    process.kill()
            except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
                continue

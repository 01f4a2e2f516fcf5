"""A rented machine for tests: a folder of its own and an environment with one address in it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpubloom.agent import AgentFiles, JobSpec
from gpubloom.storage import Arrival, Bundle, Mailbox, Receiver, SentBundle, Store, send_bundle
from gpubloom.storage.layout import JobLayout
from gpubloom.traincard.sync.accepted import TRAINING_PATHS, AcceptedPaths
from tests.agent.runs import TIMEOUT_SECONDS

QUICK = {"every": 0.1, "beat": 0.5, "obey": 20.0, "deliver": 60.0}


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a run that both sides must have alike."""
    left_out = {"lock", "control.lock"}
    found = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in name.parts)
        if path.is_file() and not hidden and path.name not in left_out and name.parts[0] != "agent":
            found[name.as_posix()] = path.read_bytes()
    return found


class Instance:
    """Job `job-1` on another machine; `run_dir` is ours, `there` is its."""

    def __init__(
        self,
        store: Store,
        folder: Path,
        files: dict[str, str],
        attempt: int = 1,
        accepted: AcceptedPaths = TRAINING_PATHS,
        **mailbox: Any,
    ) -> None:
        self.store, self.folder = store, folder / "instance"
        self.run_dir = folder / "mine"
        self.attempt = attempt
        self.there = self.folder / f"attempt-{attempt}" / "run"
        for name, text in files.items():
            (self.run_dir / name).parent.mkdir(parents=True, exist_ok=True)
            (self.run_dir / name).write_text(text)
        self.mailbox = Mailbox(store, JobLayout("job-1", attempt), **mailbox)
        self.receiver = Receiver(
            store, "job-1", attempt, self.run_dir, accepted=accepted, mailbox=self.mailbox
        )
        self.output = folder / "instance.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, **job: Any) -> None:
        self.launch(self.send(**job))

    def send(
        self, timing: dict[str, Any] | None = None, wheel: Path | None = None, **spec: Any
    ) -> SentBundle:
        job = JobSpec(
            "job-1", self.run_dir, self.attempt, (sys.executable, "train.py"), stop_grace_seconds=20, **spec
        )
        bundle = Bundle(job, self.run_dir, wheel, timing={**QUICK, **(timing or {})})
        return send_bundle(self.store, bundle, mailbox=self.mailbox)

    def launch(self, sent: SentBundle, **more: str) -> None:
        environment = {
            **more,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "BLOOM_JOB_FOLDER": str(self.folder),
            "BLOOM_START": sent.address,
        }
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                ["sh", "-c", f"exec {sent.command}"], env=environment, stdout=output, stderr=output
            )

    def again(self) -> None:
        """What a service does with a start-up script whose program died: without any address."""
        folder = self.there.parent
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, folder / "bloom-agent.pyz", "remote", folder],
                env={"PATH": os.environ["PATH"]},
                stdout=output,
                stderr=output,
            )

    def terminate(self) -> None:
        assert self._process is not None
        self._process.terminate()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def until(self, state: str, *, step: float = 0.05) -> Arrival:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (arrival := self.receiver.once()).state != state:
            assert time.monotonic() < deadline, f"{arrival} instead of {state}: {self.output.read_text()}"
            time.sleep(step)
        return arrival

    def code(self) -> int:
        assert self._process is not None
        return self._process.wait(TIMEOUT_SECONDS)

    def clean_up(self) -> None:
        record = AgentFiles(self.there).read_agent()
        if record is not None:
            record.agent.signal(signal.SIGKILL)
            record.training.signal(signal.SIGKILL)
        if self._process is not None and self._process.poll() is None:
            self.kill()

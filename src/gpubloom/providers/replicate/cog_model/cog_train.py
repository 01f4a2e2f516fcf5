"""A training of Replicate that runs one job of GPU Bloom.

It is given one address, as a secret. What lies there fetches the job's own agent, which does the rest. What
the job makes goes to the job's owner; a finished model is handed to Replicate as weights, too.
"""

import os
import shlex
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path as Folder

from cog import BaseModel, Input, Path, Secret

# After SIGTERM the agent saves a checkpoint and delivers it.
SECONDS_TO_SAVE = 300


class TrainingOutput(BaseModel):
    weights: Path


def train(
    key: str = Input(description="ID of the attempt, set by GPU Bloom"),
    command: str = Input(description="Command that starts the agent"),
    start: Secret = Input(description="Address of the job description"),
    packages: str = Input(description="Packages to install first, as pip arguments", default=""),
    longest_seconds: int = Input(description="Time limit in seconds; 0 means no limit", default=0),
) -> TrainingOutput:
    if packages:
        install = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-input",
            "--",
            *shlex.split(packages),
        ]
        # What cannot be installed is missed by the job itself, which says so where its owner reads it.
        subprocess.run(install, check=False)
    folder = Folder(os.environ.get("BLOOM_JOB_FOLDER") or tempfile.mkdtemp(prefix="bloom-job-"))
    # In the environment, never on a command line: others may read those.
    environment = {**os.environ, "BLOOM_JOB_FOLDER": str(folder), "BLOOM_START": start.get_secret_value()}
    print(f"[bloom] attempt {key}", flush=True)
    agent = subprocess.Popen(
        ["/bin/sh", "-c", command],
        env=environment,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    # Cog keeps what this process prints itself, not what its children do.
    reader = threading.Thread(target=show, args=(agent,), daemon=True)
    reader.start()
    try:
        code = waited(agent, longest_seconds or None)
        reader.join(10)
    except BaseException:
        # The time is up, or somebody cancelled the training.
        stop(agent)
        raise
    if code != 0:
        raise RuntimeError(f"The agent of the job ended with exit code {code}.")
    return TrainingOutput(weights=Path(packed(folder)))


def show(agent: subprocess.Popen) -> None:
    for line in agent.stdout:
        print(line, end="", flush=True)


def waited(agent: subprocess.Popen, seconds: "int | None") -> int:
    """In short waits: a cancellation is raised between two instructions, and never in a call that blocks."""
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        try:
            return agent.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            if deadline is not None and time.monotonic() > deadline:
                raise


def stop(agent: subprocess.Popen) -> None:
    for number, seconds in ((signal.SIGTERM, SECONDS_TO_SAVE), (signal.SIGKILL, None)):
        try:
            os.killpg(agent.pid, number)
            agent.wait(timeout=seconds)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def packed(folder: Folder) -> Folder:
    """The finished model of the newest attempt, where there is one."""
    weights = Folder(tempfile.mkdtemp()) / "weights.tar"
    models = sorted(folder.glob("attempt-*/run/model"), key=lambda path: path.stat().st_mtime)
    with tarfile.open(weights, "w") as tar:
        if models:
            tar.add(models[-1], arcname="model")
    return weights

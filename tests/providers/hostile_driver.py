"""Runs the hostile script beside a neighbour's job, in one way to start jobs. Prints one JSON object.

`python -m tests.providers.hostile_driver WAY HOME` with WAY bubblewrap, fork or warm. A program of its own so
that it can run as another user.
"""

import asyncio
import json
import os
import shutil
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpubloom.agent import AgentFiles, JobSpec
from gpubloom.agent.file_lock import is_held
from gpubloom.providers.base import Reservation
from gpubloom.providers.local.devices import Devices
from gpubloom.providers.local.provider import LocalProvider
from gpubloom.providers.local.sandbox import Sandbox
from gpubloom.sandbox.launch import COMMAND
from gpubloom.sandbox.options import Limits

LIMITS = Limits(memory_bytes=512 << 20, processes=80, file_bytes=128 << 20, least_free_bytes=1 << 20)
ATTACKS = ("look", "forks", "mmap", "memfd", "tmpfs", "private", "output")
SCRIPT = Path(__file__).with_name("hostile_script.py")


class Driver:
    def __init__(self, way: str, home: Path) -> None:
        self.way, self.home = way, home
        devices = Devices(home, find_gpus=list)
        self.provider = LocalProvider(home, warm=way == "warm", warm_modules=["sqlite3"], devices=devices)

    async def run(self) -> dict[str, Any]:
        secrets = [self.home / "secret.key", self.home / "bloom.db", self.home / "runs/theirs/model.bin"]
        for path in secrets:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("a secret")
        await self.provider.open()
        found: dict[str, Any] = {}
        with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket(socket.AF_UNIX) as abstract:
            port = listening.getsockname()[1]
            abstract.bind(f"\0hostile-{port}")
            abstract.listen()
            neighbour = await self._start("neighbour", tenant="they")
            secrets.append(neighbour / "ticks")
            look = {"secrets": [str(path) for path in secrets], "port": port, "pid": os.getpid()}
            for attack in ATTACKS:
                began, ticks = time.monotonic(), _size(neighbour / "ticks")
                run_dir = await self._start(attack, tenant="me", look=look)
                await self._end(run_dir)
                record = AgentFiles(run_dir).read_exit(1)
                assert record is not None
                log = (run_dir / "logs" / "output.log").read_bytes()
                found[attack] = {
                    "code": record.code,
                    "signal": record.signal,
                    "seconds": round(time.monotonic() - began, 2),
                    "output": log[-2_000:].decode(errors="replace"),
                    "output_bytes": len(log),
                    "neighbour_ticks": _size(neighbour / "ticks") - ticks,
                }
        (neighbour / "enough").touch()
        await self._end(neighbour)
        ended = AgentFiles(neighbour).read_exit(1)
        found["neighbour"] = None if ended is None else ended.code
        await self.provider.close()
        found["secrets"] = [path.read_text() for path in secrets[:3]]
        return found

    async def _start(self, attack: str, *, tenant: str, look: dict[str, Any] | None = None) -> Path:
        run_dir = self.home / "runs" / attack
        run_dir.mkdir(parents=True)
        shutil.copy(SCRIPT, run_dir / "train.py")
        (run_dir / "attack").write_text(attack)
        (run_dir / "look.json").write_text(json.dumps(look))
        sandbox = Sandbox(run_dir, self.home, tenant, LIMITS)
        options = sandbox.of_a_training(
            [], self.home / "cache" / tenant, noun="training", python=sys.executable
        )
        if self.way != "bubblewrap":
            options = replace(options, bubblewrap=None)
        assert self.way != "bubblewrap" or options.bubblewrap is not None
        spec = JobSpec(
            attack,
            run_dir,
            1,
            (sys.executable, "train.py", "look"),
            output_limit_bytes=1 << 20,
            confinement=options.to_json(),
            launcher=COMMAND,
        )
        with Reservation([], [], {}) as nothing:
            await self.provider.submit(spec, nothing)
        how = AgentFiles(run_dir).read_agent()
        assert how is not None
        assert how.start.startswith("warm" if self.way == "warm" else "plain"), how.start
        return run_dir

    async def _end(self, run_dir: Path) -> None:
        deadline = time.monotonic() + 90
        while is_held(AgentFiles(run_dir).lock):
            assert time.monotonic() < deadline, f"{run_dir.name} goes on"
            await asyncio.sleep(0.02)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


if __name__ == "__main__":
    print(json.dumps(asyncio.run(Driver(sys.argv[1], Path(sys.argv[2])).run())))

"""Jobs in sessions of Colab, through the official command `colab` where the operator has set it up.

A session is named by its key. The address of the job is uploaded as a file, which the start reads and
deletes; then the agent goes on without the kernel. Colab takes sessions away when it likes: one that is gone
is lost, and the next attempt goes on from the checkpoint.
"""

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpubloom.offers import PriceRow
from gpubloom.providers.cloud import (
    KEY_PREFIX,
    Capabilities,
    Capability,
    CloudProvider,
    Fault,
    Instance,
    Launch,
)
from gpubloom.providers.colab.program import ColabProgram
from gpubloom.providers.registry import ProviderSpec

_NEW_SECONDS = 600.0
_LONGEST_SECONDS = 24 * 3600.0
_PAGE = "https://colab.research.google.com/"
_START, _LOG = "/content/.bloom-start", "/content/bloom.log"
_GPUS = {"t4": "T4", "l4": "L4", "g4": "G4", "a100 40gb": "A100", "a100": "A100", "h100": "H100"}
_SESSION = re.compile(rf"^\[({KEY_PREFIX}[A-Za-z0-9-]+)\]", re.MULTILINE)
_NOT_UNATTENDED = (
    "Colab runs only notebooks that you open yourself. Create a notebook (`bloom scripts run PATH "
    "--provider colab --notebook FILE`), or ask the operator to set up the command colab "
    "(BLOOM_COLAB_CLI)."
)
# Runs in the session's kernel, and is kept in its history: no secret is in it.
_BOOT = """\
import os, pathlib, subprocess, sys
start = pathlib.Path({start!r})
address = start.read_text().strip()
start.unlink()
if pathlib.Path("/content/.bloom-started").exists():
    print("runs already")
else:
    packages = {packages!r}
    if packages:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--", *packages], check=False)
    with open({log!r}, "ab") as log:
        subprocess.Popen(
            ["/bin/sh", "-c", {command!r}], env={{**os.environ, "BLOOM_START": address}},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )
    pathlib.Path("/content/.bloom-started").touch()
    print("started")
"""


def capabilities(set_up: bool) -> Capabilities:
    return Capabilities(
        runs_unattended=Capability(True) if set_up else Capability(False, _NOT_UNATTENDED),
        live_prices=Capability(False, "Colab sells compute units and does not publish a price per hour."),
        several_gpus=Capability(False, "A Colab session has one GPU."),
        several_nodes=Capability(False, "Colab sessions cannot be combined for one job."),
        spot=Capability(False, "Colab has no spot instances. It can end any session at any time."),
        longest_seconds=_LONGEST_SECONDS,
        # Colab ends every session at its longest life.
        switch_off=Capability(True),
    )


class ColabSessions:
    """The one account that the command is signed in to."""

    name = "colab"

    def __init__(self, program: ColabProgram) -> None:
        self.capabilities = capabilities(set_up=True)
        self._program = program
        self._ended: set[str] = set()
        # `colab new` with a name that is taken would rent a second machine and forget the first.
        self._launching = asyncio.Lock()

    def __repr__(self) -> str:
        return "ColabSessions()"

    async def check(self) -> str:
        sessions = await self._sessions()
        return f"signed in, {len(sessions)} running sessions of GPU Bloom" if sessions else "signed in"

    async def prices(self) -> list[PriceRow]:
        """None: see `capabilities.live_prices`."""
        return []

    async def submit(self, launch: Launch) -> Instance:
        assert launch.key.startswith(KEY_PREFIX), launch.key
        gpu = _GPUS.get(launch.gpu.casefold())
        if gpu is None or launch.gpus != 1:
            raise Fault(
                "refused",
                f"Colab has no session with {launch.gpus}× {launch.gpu}. Available: T4, L4, G4, A100, H100.",
            )
        async with self._launching:
            if launch.key not in await self._sessions():
                await self._new(launch.key, gpu)
            await self._boot(launch)
        self._ended.discard(launch.key)
        return Instance(launch.key, launch.key, "running", page=_PAGE)

    async def status(self, instance_id: str) -> Instance:
        if instance_id in self._ended:
            return Instance(instance_id, instance_id, "ended", "The session was ended.")
        if instance_id in await self._sessions():
            return Instance(instance_id, instance_id, "running", page=_PAGE)
        return Instance(instance_id, instance_id, "lost", "Colab ended the session.")

    async def cancel(self, instance_id: str) -> None:
        try:
            said = await self._program.call("stop", "-s", instance_id)
        except Fault as fault:
            if fault.kind != "gone":
                raise
            return
        # One that was gone before was lost, not ended.
        if "not found" not in said:
            self._ended.add(instance_id)

    async def list(self) -> list[Instance]:
        return [Instance(name, name, "running", page=_PAGE) for name in sorted(await self._sessions())]

    async def close(self) -> None:
        """Nothing is open: every call is a process of its own."""

    async def _sessions(self) -> set[str]:
        """Names of ours that Colab has; the program asks Colab and forgets those that are gone."""
        return set(_SESSION.findall(await self._program.call("status")))

    async def _new(self, key: str, gpu: str) -> None:
        try:
            await self._program.call("new", "-s", key, "--gpu", gpu, timeout_seconds=_NEW_SECONDS)
        except Fault as fault:
            if not fault.uncertain or key not in await self._sessions():
                raise

    async def _boot(self, launch: Launch) -> None:
        call = self._program.call
        try:
            with tempfile.TemporaryDirectory() as folder:
                start, boot = _written(Path(folder), launch)
                await call("upload", "-s", launch.key, str(start), _START)
                # Packages are installed without a word, and the program gives up after 30 silent seconds.
                await call(
                    "exec",
                    "-s",
                    launch.key,
                    "-f",
                    str(boot),
                    "--timeout",
                    f"{_NEW_SECONDS:.0f}",
                    timeout_seconds=_NEW_SECONDS,
                )
        except Fault:
            # A session without a job costs as much as one with.
            await self.cancel(launch.key)
            raise


def _written(folder: Path, launch: Launch) -> tuple[Path, Path]:
    """What is uploaded and what is executed. Only this user may read the folder."""
    start, boot = folder / "start", folder / "boot.py"
    start.write_text(launch.start_address)
    boot.write_text(
        _BOOT.format(start=_START, log=_LOG, command=launch.command, packages=list(launch.packages))
    )
    return start, boot


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _command() -> str | None:
    """What the operator set, if it is there."""
    command = os.environ.get("BLOOM_COLAB_CLI", "").strip()
    return command if command and shutil.which(command.split()[0]) else None


@dataclass(frozen=True)
class _Colab(ProviderSpec):
    def why_not(self) -> str | None:
        return None if _command() else _NOT_UNATTENDED

    def open(self, credentials: Mapping[str, str]) -> CloudProvider:
        command = _command()
        if command is None:
            raise Fault("refused", _NOT_UNATTENDED)
        return ColabSessions(ColabProgram(command))


def __getattr__(name: str) -> ProviderSpec:
    """PROVIDER is made when it is read: what it can do depends on what the operator has set up."""
    if name != "PROVIDER":
        raise AttributeError(name)
    return _Colab("colab", "Colab", (), capabilities(set_up=_command() is not None), _PAGE)

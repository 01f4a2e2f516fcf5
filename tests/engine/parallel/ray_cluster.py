"""A real Ray cluster of several nodes on this machine, each a process group that can be killed."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.ports import free_port

# Small, silent, and quick to notice what is gone.
SETTINGS = {
    "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "4000",
    "RAY_health_check_failure_threshold": "4",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_TRAIN_METRICS_ENABLED": "0",
}
_STORE_BYTES = 80_000_000
_START_SECONDS = 180.0
_AGENT_PORTS = ("dashboard-agent-listen", "dashboard-agent-grpc", "runtime-env-agent", "metrics-export")


@dataclass(frozen=True)
class Machine:
    """Where a node is: its address, and the words before a command that is to run there."""

    address: str = "127.0.0.1"
    entering: Sequence[str] = ()


HERE = Machine()


class RayNode:
    """One node: a `ray start` that stays, with all that it started."""

    def __init__(self, arguments: Sequence[str], log: Path, home: Path, machine: Machine) -> None:
        self.machine = machine
        self._log = log
        self._output = log.open("wb")
        self.process = subprocess.Popen(
            [
                *machine.entering,
                *(sys.executable, str(Path(__file__).with_name("patient_ray.py"))),
                *("start", "--block", "--disable-usage-stats", f"--node-ip-address={machine.address}"),
                f"--object-store-memory={_STORE_BYTES}",
                # Ports that Ray chooses itself it waits for, and not long: a busy machine is too slow for it.
                *(f"--{name}-port={free_port()}" for name in _AGENT_PORTS),
                # Otherwise workers claim 10002 to 19999, and Ray refuses a port from there for anything else.
                *("--min-worker-port=0", "--max-worker-port=0"),
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **SETTINGS, "HOME": str(home)},
            start_new_session=True,
        )

    @property
    def words(self) -> str:
        return self._log.read_text(errors="replace")

    def has_started(self) -> bool:
        assert self.process.poll() is None, self.words
        return "Ray runtime started." in self.words

    def kill(self) -> None:
        """As when the machine's power fails."""
        try:
            family = [*psutil.Process(self.process.pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            family = []
        for process in (psutil.Process(self.process.pid) if self.process.poll() is None else None, *family):
            if process is not None:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
        self.process.wait()
        self._output.close()


class RayCluster:
    """A head without room for work, and nodes with one core each."""

    def __init__(self, *, dashboard: bool = False, machine: Machine = HERE) -> None:
        self._machine = machine
        self._folder = tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True)
        self.port = free_port()
        self.dashboard_port = free_port()
        self._dashboard = dashboard
        self._count = 0
        self.head: RayNode | None = None
        self.nodes: list[RayNode] = []

    @property
    def folder(self) -> Path:
        return Path(self._folder.name)

    @property
    def home(self) -> Path:
        """Of all nodes: what a job leaves there must not be found by the next cluster's."""
        (self.folder / "home").mkdir(exist_ok=True)
        return self.folder / "home"

    @property
    def address(self) -> str:
        return f"{self._machine.address}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return {**SETTINGS, "RAY_ADDRESS": self.address}

    def start_head(self, cpus: int = 0) -> None:
        dashboard = (
            [
                "--include-dashboard=true",
                "--dashboard-host=127.0.0.1",
                f"--dashboard-port={self.dashboard_port}",
            ]
            if self._dashboard
            else ["--include-dashboard=false"]
        )
        temporary = f"--temp-dir={self._folder.name}/h{self._count}"
        self.head = self._start(
            [
                *("--head", f"--port={self.port}", f"--num-cpus={cpus}", temporary, *dashboard),
                # Otherwise every cluster of this machine wants 10001.
                f"--ray-client-server-port={free_port()}",
            ],
            self._machine,
        )

    def add_node(self, machine: Machine = HERE) -> RayNode:
        node = self._start([f"--address={self.address}", "--num-cpus=1"], machine)
        self.nodes.append(node)
        return node

    def replace_ended_nodes(self) -> None:
        """What whoever keeps the nodes up does: systemd, Kubernetes, a person."""
        for node in [node for node in self.nodes if node.process.poll() is not None]:
            self.lose(node)
            self.add_node(node.machine)

    def _start(self, arguments: Sequence[str], machine: Machine) -> RayNode:
        self._count += 1
        node = RayNode(arguments, self.folder / f"node{self._count}.log", self.home, machine)
        deadline = time.monotonic() + _START_SECONDS
        try:
            while not node.has_started():
                assert time.monotonic() < deadline, node.words
                time.sleep(0.1)
        except BaseException:
            node.kill()
            raise
        return node

    def lose_head(self) -> None:
        assert self.head is not None
        self.head.kill()
        self.head = None

    def lose(self, node: RayNode) -> None:
        node.kill()
        self.nodes.remove(node)

    def lose_all(self) -> None:
        for node in (*self.nodes, *([self.head] if self.head else [])):
            node.kill()
        self.nodes.clear()
        self.head = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lose_all()
        self._folder.cleanup()

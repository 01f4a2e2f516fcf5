"""Two machines and the cable between them, made of network namespaces; the cable can be pulled."""

import os
import subprocess
from types import TracebackType
from typing import Self

from tests.engine.parallel.ray_cluster import Machine


class Cable:
    """`head` and `node` see nothing but each other. Pulled as at a switch: both keep their own addresses."""

    def __init__(self) -> None:
        name = f"bloom{os.getpid()}"
        self._switch, self._ends = f"{name}-switch", {"head": f"{name}-head", "node": f"{name}-node"}
        self.head, self.node = (
            Machine(address, ("ip", "netns", "exec", self._ends[end]))
            for end, address in (("head", "10.77.0.1"), ("node", "10.77.0.2"))
        )

    def pull(self) -> None:
        _ip("-n", self._switch, "link", "set", "port-node", "down")

    def plug_in(self) -> None:
        _ip("-n", self._switch, "link", "set", "port-node", "up")

    def __enter__(self) -> Self:
        """OSError, with the system's words, where that is not permitted or not possible."""
        try:
            for name in (self._switch, *self._ends.values()):
                _ip("netns", "add", name)
                _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
            _ip("-n", self._switch, "link", "set", "switch", "up")
            for machine, (end, name) in zip((self.head, self.node), self._ends.items(), strict=True):
                port = f"port-{end}"
                pair = ("type", "veth", "peer", "name", "eth0", "netns", name)
                _ip("-n", self._switch, "link", "add", "name", port, *pair)
                _ip("-n", self._switch, "link", "set", port, "master", "switch", "up")
                _ip("-n", name, "address", "add", f"{machine.address}/24", "dev", "eth0")
                _ip("-n", name, "link", "set", "eth0", "up")
                # It leads nowhere. Ray asks by which way it would leave the machine to learn its address.
                _ip("-n", name, "route", "add", "default", "dev", "eth0")
        except OSError:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        for name in (self._switch, *self._ends.values()):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")

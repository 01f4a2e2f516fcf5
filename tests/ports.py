"""Ports for servers that cannot choose one themselves."""

import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 15_000
_given: set[int] = set()


def free_port() -> int:
    """A port of the loopback address that nobody listens on, and that this process was not given before.

    Below those that the system gives to outgoing connections: one of them would be taken by a connection of
    some other test before the server is there, or while it is stopped.
    """
    chance = random.SystemRandom()
    ceiling = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    while True:
        port = chance.randrange(_LOWEST, max(ceiling, _LOWEST + 1_000))
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                # On all addresses: some servers listen on more than one.
                probe.bind(("", port))
            except OSError:
                continue
        _given.add(port)
        return port

"""Which network interface leads to the other processes of a run.

Gloo listens on the address of this machine's own name, which on many systems is 127.0.0.1 or 127.0.1.1:
nobody else can connect to that.
"""

import os
import socket
import struct
import sys
from collections.abc import Iterator

_NAME_BYTES = 15
# Linux: asks for the IPv4 address of an interface.
_SIOCGIFADDR = 0x8915


def lead_gloo_to(host: str, port: int) -> None:
    """Has Gloo use the interface by which `host` is reached, unless GLOO_SOCKET_IFNAME names one."""
    if (name := interface_to(host, port)) is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def interface_to(host: str, port: int) -> str | None:
    """None where the way does not leave this machine, or cannot be found out: Gloo then chooses itself."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            # Nothing is sent: connecting only chooses the way.
            asking.connect((host, port))
            own = asking.getsockname()[0]
    except OSError:
        return None
    if own.startswith("127."):
        return None
    return next((name for name, address in _addresses() if address == own), None)


def _addresses() -> Iterator[tuple[str, str]]:
    if not sys.platform.startswith("linux"):
        return
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            question = struct.pack("256s", name.encode()[:_NAME_BYTES])
            try:
                answer = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, question)
            except OSError:
                # It has no address.
                continue
            yield name, socket.inet_ntoa(answer[20:24])

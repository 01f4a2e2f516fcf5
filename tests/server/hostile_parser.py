"""A parser that a file has taken over: `python -m` this instead of a reader of the server.

It is the reader itself, up to the first byte of the file. Then it tries what a stranger's code would try, and
puts what came of it in the sentence of its refusal.
"""

import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from gpubloom.datasets import NotADataset, Source
from gpubloom.sandbox import kernel
from gpubloom.server.datasets import read_process


def attempts(own: Path) -> dict[str, Callable[[], Any]]:
    home = own.parents[2]
    theirs = Path(os.environ["HF_HUB_TEST_OTHER"])
    return {
        "read_own": lambda: own.read_bytes(),
        "read_key": lambda: (home / "secret.key").read_bytes(),
        "read_database": lambda: (home / "bloom.db").read_bytes(),
        "read_other_dataset": lambda: theirs.read_bytes(),
        "read_passwords": lambda: Path("/etc/passwd").read_bytes(),
        "read_environment_of_server": lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
        "write_beside_own": lambda: own.with_name("new").write_text("x"),
        "change_own": lambda: own.write_text("x"),
        "write_temporary": lambda: Path("/tmp/taken-over").write_text("x"),
        "link_to_home": lambda: own.with_name("link").symlink_to(home),
        "connect": lambda: socket.create_connection(("127.0.0.1", int(os.environ["HF_HUB_TEST_PORT"])), 5),
        "run_a_program": lambda: subprocess.run(["/bin/true"], check=True),
        "signal_the_server": lambda: os.kill(os.getppid(), 0),
        "second_process": _fork,
        "unix_socket": lambda: socket.socket(socket.AF_UNIX),
        "udp_socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        "new_namespace": lambda: kernel.unshare(kernel.CLONE_NEWUSER),
        "much_memory": lambda: bytearray(7 << 30),
    }


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def try_all(own: Path) -> str:
    """What came of each attempt, as JSON. `own`: a file below the server's home, two folders deep."""
    found = {}
    for name, attempt in attempts(own).items():
        try:
            attempt()
            found[name] = "done"
        except BaseException as problem:  # noqa: BLE001 - whatever stops it is worth knowing
            found[name] = type(problem).__name__
    return json.dumps(found)


def take_over(path: Path, **_: Any) -> NoReturn:
    raise NotADataset("taken_over", try_all(path))


if __name__ == "__main__":
    Source.open = take_over  # type: ignore[method-assign]
    read_process.main()

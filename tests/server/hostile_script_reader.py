"""A reader of scripts that a script has taken over: `python -m` this instead of the server's own.

It is the reader itself, up to the first character of a script. Then it does what the script says.
"""

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpubloom.scripts import ScriptProblem
from gpubloom.server.scripts import read_process
from tests.server.hostile_parser import try_all

_seen: list[str] = []
_detect = read_process.ACTIONS["requirements"]


def endless() -> None:
    while True:
        time.sleep(1)


def flood() -> None:
    while True:
        sys.stdout.write("a" * (1 << 20))


def nested() -> None:
    sys.stdout.write("[" * 200_000 + "\n")
    sys.stdout.flush()
    endless()


ATTACKS: dict[str, Callable[[], Any]] = {
    "try_all()": lambda: try_all(Path(os.environ["HF_HUB_TEST_OTHER"])),
    "seen()": lambda: json.dumps(_seen[:-1]),
    "endless()": endless,
    "flood()": flood,
    "nested()": nested,
    "crash()": lambda: ctypes.string_at(0),
}


def attacked(request: dict[str, Any]) -> Any:
    script = str(request["script"])
    _seen.append(script)
    if script not in ATTACKS:
        return _detect(request)
    raise ScriptProblem("taken_over", str(ATTACKS[script]()))


if __name__ == "__main__":
    read_process.ACTIONS["requirements"] = attacked
    read_process.main()

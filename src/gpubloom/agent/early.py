"""A training process that starts before it is known what it trains, and imports modules meanwhile.

`python -P -m gpubloom.agent.early MODULE,… …` imports the modules of each argument in a thread of their own,
since an import mostly waits for files; the main thread imports those of the first. The process reads one line
of JSON from its standard input: the script to become with its arguments, and the file for its output. When
the input is closed instead, as it is when the process that started this one dies, it ends at once.
"""

import contextlib
import importlib
import json
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpubloom.agent.warm import Script


def main(modules: Sequence[str]) -> None:
    asked: dict[str, Any] = {}
    # What modules print while they are imported, such as a warning of torch, belongs in the output.
    printed = os.memfd_create("printed")
    for number in (1, 2):
        os.dup2(printed, number)

    def read() -> None:
        with open(0, "rb", closefd=False) as commands:
            line = commands.readline()
        if not line.endswith(b"\n"):
            os._exit(0)
        asked.update(json.loads(line))
        try:
            _connect_streams(Path(asked["output"]), printed)
        except OSError:
            os._exit(1)

    # Not the main thread, which may import for seconds after the other end was closed.
    reading = threading.Thread(target=read, name="start", daemon=True)
    reading.start()

    def load(names: str) -> None:
        for name in names.split(","):
            if not reading.is_alive():
                break
            # What fails here fails again in the script, whose error is the one to tell.
            with contextlib.suppress(Exception):
                importlib.import_module(name)

    first, *others = modules
    for names in others:
        threading.Thread(target=load, args=[names], name=names, daemon=True).start()
    load(first)
    reading.join()
    Script(Path.cwd(), asked["script"], dict(os.environ)).run()


def _connect_streams(output: Path, printed: int) -> None:
    for path, flags, numbers in (
        (Path(os.devnull), os.O_RDONLY, [0]),
        (output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, [1, 2]),
    ):
        opened = os.open(path, flags, 0o666)
        for number in numbers:
            os.dup2(opened, number)
        os.close(opened)
    with open(printed, "rb") as before:
        before.seek(0)
        os.write(1, before.read())


if __name__ == "__main__":
    main(sys.argv[1:])

"""Runs a script in a process that was forked, as `python script.py` would in a fresh one."""

import io
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

_CANNOT_OPEN = 2


@dataclass(frozen=True)
class Script:
    """`arguments[0]` is the script, relative to `folder`; the environment replaces the present one."""

    folder: Path
    arguments: Sequence[str]
    environment: Mapping[str, str]

    def run(self) -> None:
        """Called at the bottom of the stack: what the script raises ends the interpreter as it should."""
        os.environ.clear()
        os.environ.update(self.environment)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _open_standard_streams()
        _seed_anew()
        path = self.folder / self.arguments[0]
        sys.argv = list(self.arguments)
        sys.path.insert(0, str(path.parent))
        try:
            source = path.read_bytes()
        except OSError as problem:
            sys.stderr.write(f"can't open file {str(path)!r}: {problem.strerror}\n")
            sys.exit(_CANNOT_OPEN)
        main = ModuleType("__main__")
        main.__dict__.update(__file__=str(path), __builtins__=__builtins__)
        # Pickle and multiprocessing look for what the script defines here.
        sys.modules["__main__"] = main
        try:
            exec(compile(source, str(path), "exec", dont_inherit=True), main.__dict__)  # noqa: S102 - that is the job
        except Exception as problem:  # noqa: BLE001 - reported as the interpreter would, then the process ends
            # The first frame is this one; a person who reads the traceback wrote the second.
            trace = problem.__traceback__ and problem.__traceback__.tb_next
            sys.excepthook(type(problem), problem.with_traceback(trace), trace)
            sys.exit(1)


def _open_standard_streams() -> None:
    """Streams without buffers, as PYTHONUNBUFFERED asks for; the fork's own were set up for other files."""
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # type: ignore[misc] # noqa: SIM115
    sys.stdout = sys.__stdout__ = _unbuffered(1, "strict")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _unbuffered(2, "backslashreplace")  # type: ignore[misc]


def _unbuffered(descriptor: int, errors: str) -> io.TextIOWrapper:
    raw = open(descriptor, "wb", buffering=0, closefd=False)  # noqa: SIM115 - lives as long as the process
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, write_through=True)


def _seed_anew() -> None:
    """Random numbers that a fresh process would draw at import must differ between forks.

    Python's own `random` does so by itself.
    """
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()

"""The command `bloom`: a thin layer over the other packages.

It may use all of them but never imports torch: training runs in a child process.
"""

import atexit
import errno
import gc
import sys
from io import StringIO, TextIOWrapper
from typing import NoReturn

from gpubloom.cli.plain_characters import in_plain_characters

# What the machine may refuse to any command, and what to do then.
_CODES = {
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "disk_full",
    errno.EACCES: "permission_denied",
    errno.EPERM: "permission_denied",
    errno.EROFS: "cannot_write",
}
_ADVICE = {
    "disk_full": "Free some disk space, or choose a folder on another disk.",
    "permission_denied": "Change the permissions, or choose another file or folder.",
    "cannot_write": "Choose a file or folder on a disk that can be written.",
    "unreadable_file": "Check the name of the file or folder.",
}
_NAME_SHOWN = 200


def main() -> None:
    """Entry point of `bloom`; prints what to install when a library of the command line is missing."""
    # Importing makes very many objects that live until the end. Searching them for garbage, while they are
    # made and when the interpreter ends, takes a third of what a server or worker needs to start and end.
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=in_plain_characters())
    try:
        from gpubloom.cli.app import app
    except ModuleNotFoundError as missing:
        if missing.name not in {"typer", "rich", "pydantic"}:
            raise
        from gpubloom.errors import error_line

        needs = f"bloom requires {missing.name!r}, which is not installed. Run: pip install 'gpubloom[cli]'"
        sys.exit(error_line("not_installed", needs))
    except KeyboardInterrupt:
        # Ctrl-C while the modules load: nothing has begun.
        sys.exit(130)
    try:
        app()
    except OSError as problem:
        if problem.errno not in _CODES and problem.filename is None:
            raise
        _end(problem, _CODES.get(problem.errno or 0, "unreadable_file"))
    except UnicodeEncodeError:
        from gpubloom.cli.output import WRONG_INPUT
        from gpubloom.errors import not_text

        sys.stderr.write(f"{not_text().lines[0]}\n")
        sys.exit(WRONG_INPUT)


def _end(problem: OSError, code: str) -> NoReturn:
    from gpubloom.cli.output import without_controls
    from gpubloom.errors import error_line

    # What could not be written would be tried once more at the end of the interpreter.
    sys.stdout = StringIO()
    name = str(problem.filename or "")
    # A text in the place of a file name may be long.
    what = f"{name if len(name) <= _NAME_SHOWN else name[:_NAME_SHOWN] + '…'}: " if name else ""
    sys.exit(without_controls(error_line(code, f"{what}{problem.strerror}. {_ADVICE[code]}")))

"""Small JSON files that are replaced whole.

A reader sees the old file or the new one, never a mixture: the new text is written under a temporary name
in the same folder and renamed over the old one.
"""

import json
import os
import threading
from pathlib import Path
from typing import Any

from gpubloom.errors import InputError


def replace_file(path: Path, text: str, *, durable: bool = False, modified_ns: int | None = None) -> None:
    """Replaces a file's text in one step; `durable` makes it survive a power cut as well."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if modified_ns is not None:
            os.utime(temporary, ns=(modified_ns, modified_ns))
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def read_json_object(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None when there is no such file. ValueError when it holds something else."""
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        value = json.loads(text)
    except RecursionError:
        raise InputError("not_json_object", f"{path.name} is nested too deeply") from None
    if isinstance(value, dict):
        return value
    raise InputError("not_json_object", f"{path.name} must contain a JSON object, not {type(value).__name__}")

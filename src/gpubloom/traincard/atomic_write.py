"""Small JSON files that are replaced whole.

A reader sees the old file or the new one, never a mixture: the new text is written under a temporary name
in the same folder and renamed over the old one.
"""

import os
import threading
from pathlib import Path
from typing import Any

from gpubloom.errors import InputError
from gpubloom.traincard.untrusted_json import UntrustedJsonError, parse_untrusted

# What a small JSON file of a run has at most: a latest.json with thousands of series has some megabytes.
LARGEST_JSON_BYTES = 32 << 20


def replace_file(
    path: Path, text: str, *, durable: bool = False, modified_ns: int | None = None, mode: int = 0o666
) -> None:
    """Replaces a file's text in one step; `durable` makes it survive a power cut as well.

    `mode`: 0o600 for what nobody else may read, not even for a moment.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
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
    return json_object(text, path.name)


def json_object(content: bytes | str, name: str, *, most: int = LARGEST_JSON_BYTES) -> dict[str, Any]:
    """The object in the content of a file. A run directory is also written by others, who may write NaN."""
    try:
        value = parse_untrusted(content, most_bytes=most, finite=False)
    except UntrustedJsonError as problem:
        raise InputError("not_json_object", f"{name} is not usable: {problem}") from None
    if isinstance(value, dict):
        return value
    raise InputError("not_json_object", f"{name} must contain a JSON object, not {type(value).__name__}")

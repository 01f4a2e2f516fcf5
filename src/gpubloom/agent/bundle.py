"""Builds `bloom-agent.pyz`: agent and traincard in one file for any Python 3.11, with nothing installed.

The same sources give the same bytes and the same name, so a file that is there is the right one.
"""

import hashlib
import io
import os
import zipfile
from pathlib import Path

import gpubloom

_PARTS = ("__init__.py", "errors.py", "agent", "traincard")
_MAIN = "from gpubloom.agent.__main__ import main\n\nmain()\n"
# The oldest moment a zip file can name.
_TIME = (1980, 1, 1, 0, 0, 0)


def build_agent(folder: Path) -> Path:
    """The agent as one file in `folder`; built when it is not there yet."""
    sources = _sources()
    digest = hashlib.sha256()
    for name, text in sources.items():
        digest.update(f"{name}\0{len(text)}\0".encode() + text)
    target = folder / f"bloom-agent-{digest.hexdigest()[:16]}.pyz"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        temporary.write_bytes(_archive(sources))
        temporary.replace(target)
    return target


def _sources() -> dict[str, bytes]:
    root = Path(gpubloom.__path__[0])
    files: list[Path] = []
    for part in _PARTS:
        files += [root / part] if part.endswith(".py") else (root / part).rglob("*.py")
    return {
        "__main__.py": _MAIN.encode(),
        **{f"gpubloom/{file.relative_to(root).as_posix()}": file.read_bytes() for file in sorted(files)},
    }


def _archive(sources: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in sources.items():
            # Stored, not compressed: packing may differ between versions of zlib.
            archive.writestr(zipfile.ZipInfo(name, _TIME), text)
    return b"#!/usr/bin/env python3\n" + packed.getvalue()

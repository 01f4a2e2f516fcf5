"""A stream's beginning in small: curves in buckets, and the events that a view needs, beside the raw lines.

`bytes` says how much of the stream is in it. A tail only grows and sealing changes no byte, so a reader goes
on with the raw lines right behind that place. It is derived: without it a reader reads more, not less.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpubloom.traincard.field_types import wrong_field
from gpubloom.traincard.layout import PROTOCOL_VERSION, RunFiles, StreamId
from gpubloom.traincard.number_encoding import to_json
from gpubloom.traincard.safe_paths import read_json_beneath

# A writer keeps some hundred thousand buckets of nine numbers at most.
_LARGEST_BYTES = 256 << 20
_BYTES = re.compile(rb'\{"v":%d,"bytes":(\d+),' % PROTOCOL_VERSION)


def load_condensed(files: RunFiles, stream: StreamId) -> dict[str, Any] | None:
    """What is condensed of a stream; None when there is nothing, or nothing that this version can use."""
    try:
        name = files.condensed(stream).relative_to(files.run_dir).as_posix()
        found = read_json_beneath(files.run_dir, name, most=_LARGEST_BYTES)
    except (OSError, ValueError):
        return None
    if found is None or found.get("v") != PROTOCOL_VERSION:
        return None
    wanted: dict[str, Any] = {"bytes": int, "seq": int, "t": (int, float), "series": dict, "events": list}
    if not all(isinstance(found.get(name), kind) for name, kind in wanted.items()):
        return None
    # The raw lines say the same, and a reader of them leaves out only what is wrong.
    return None if any(_is_wrong(event) for event in found["events"]) else found


def _is_wrong(event: Any) -> bool:
    return not isinstance(event, dict) or wrong_field(str(event.get("kind")), event) is not None


def condensed_bytes(files: RunFiles, stream: StreamId) -> int:
    """How much of a stream is condensed, from the first bytes of the file; 0 when nothing is."""
    try:
        with files.condensed(stream).open("rb") as file:
            found = _BYTES.match(file.read(64))
    except OSError:
        return 0
    return int(found[1]) if found else 0


def save_condensed(path: Path, head: Mapping[str, Any], series: Iterator[tuple[str, Any]]) -> None:
    """Replaces the file, series by series: one long call to the encoder would hold up the training thread."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="ascii") as file:
            file.write(f'{to_json({"v": PROTOCOL_VERSION, **head})[:-1]},"series":{{')
            separator = ""
            for name, columns in series:
                file.write(f"{separator}{to_json(name)}:{to_json(columns)}")
                separator = ","
            file.write("}}\n")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise

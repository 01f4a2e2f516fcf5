"""A snapshot as the page is given it: the same shape, only smaller.

Times of single points are not drawn, so they stay behind. What a run says is never trusted: it stays data,
and only addresses made here become links.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

_DRAWN = ("attempt", "rank", "x", "y", "low", "high", "n", "gaps", "last")
# With script and style, the page stays under 3 MB: a browser opens it at once, and it can be sent by mail.
_MOST_BYTES = 2_800_000
# A page draws 1000 points of a line. The file is all that a zoom can load its detail from, so it holds more
# where a run has few lines.
_POINTS, _MOST_POINTS, _FEWEST_POINTS = 2000, 8000, 50
_DETAIL_BYTES, _BYTES_PER_POINT = 1_400_000, 20


def run_content(
    run_dir: Path, *, name: str | None = None, page_folder: Path | None = None, notes: tuple[str, ...] = ()
) -> dict[str, Any]:
    """What goes into the page of a run, with as many points as a page has room for."""
    from gpubloom.traincard.reading import Reading
    from gpubloom.traincard.snapshot import snapshot

    reading = Reading.of_page(run_dir, most_buckets=_MOST_POINTS // 2)
    reading.update()
    lines = sum(1 for _ in reading.curves.all())
    points = max(_POINTS, min(_MOST_POINTS, _DETAIL_BYTES // (_BYTES_PER_POINT * max(1, lines))))
    while True:
        found = snapshot(reading, points=points)
        named = {**found, "name": name or found["name"]}
        content = card_content(named, run_dir=run_dir, page_folder=page_folder, notes=notes)
        if points <= _FEWEST_POINTS or len(json.dumps(content, separators=(",", ":"))) <= _MOST_BYTES:
            return content
        points //= 2


def card_content(
    snapshot: Mapping[str, Any],
    *,
    run_dir: Path | None = None,
    page_folder: Path | None = None,
    notes: tuple[str, ...] = (),
) -> dict[str, Any]:
    """What goes into the page. With `run_dir` and `page_folder`, saved checkpoints that exist get a link."""
    content = dict(snapshot)
    content["metrics"] = [
        {**metric, "lines": [{key: line[key] for key in _DRAWN if key in line} for line in metric["lines"]]}
        for metric in snapshot["metrics"]
    ]
    checkpoints = snapshot["checkpoints"]
    content["checkpoints"] = {
        **checkpoints,
        "items": [_linked(item, run_dir, page_folder) for item in checkpoints["items"]],
    }
    if notes:
        content["notes"] = list(notes)
    return content


def _linked(item: Mapping[str, Any], run_dir: Path | None, page_folder: Path | None) -> dict[str, Any]:
    linked = dict(item)
    # Set only here: a run cannot name its own address.
    linked.pop("link", None)
    path = str(item["path"])
    if path.startswith("https://"):
        linked["link"] = path
    elif run_dir is not None and page_folder is not None and "://" not in path and not item.get("removed"):
        file = (run_dir / path).absolute()
        if file.exists():
            linked["link"] = quote(_relative(file, page_folder.absolute()))
    return linked


def _relative(file: Path, folder: Path) -> str:
    """A way from the page to the checkpoint that survives moving both together."""
    shared = 0
    for first, second in zip(file.parts, folder.parts, strict=False):
        if first != second:
            break
        shared += 1
    return "/".join([*[".."] * (len(folder.parts) - shared), *file.parts[shared:]]) or "."

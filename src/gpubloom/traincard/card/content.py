"""A snapshot as the page is given it: the same shape, only smaller.

Times of single points are not drawn, so they stay behind. What a run says is never trusted: it stays data,
and only addresses made here become links.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

_DRAWN = ("attempt", "rank", "x", "y")


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
        {**metric, "lines": [{key: line[key] for key in _DRAWN} for line in metric["lines"]]}
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
        place = (run_dir / path).absolute()
        if place.exists():
            linked["link"] = quote(_relative(place, page_folder.absolute()))
    return linked


def _relative(place: Path, folder: Path) -> str:
    """A way from the page to the checkpoint that survives moving both together."""
    shared = 0
    for first, second in zip(place.parts, folder.parts, strict=False):
        if first != second:
            break
        shared += 1
    return "/".join([*[".."] * (len(folder.parts) - shared), *place.parts[shared:]]) or "."

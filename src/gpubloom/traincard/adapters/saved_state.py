"""Checkpoints of a hand-written loop, complete or absent: written under a temporary name, then renamed."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpubloom.traincard.layout import find_rank

_STATE = "state.pt"
_POSITION = "position.json"


def write(
    path: Path,
    save: Callable[[Path], object],
    position: Mapping[str, int],
    rank: int,
    wait_for_all: Callable[[], None],
) -> None:
    """Lets `save` fill a folder, on every rank, and gives it its name when the last rank is done."""
    temporary = path.with_name(f".writing-{path.name}")
    if rank == 0:
        shutil.rmtree(temporary, ignore_errors=True)
    wait_for_all()
    temporary.mkdir(parents=True, exist_ok=True)
    save(temporary)
    wait_for_all()
    if rank == 0:
        with (temporary / _POSITION).open("w", encoding="utf-8") as file:
            json.dump(dict(position), file)
            file.flush()
            os.fsync(file.fileno())
        shutil.rmtree(path, ignore_errors=True)
        temporary.rename(path)
    wait_for_all()


def newest(folder: Path) -> tuple[Path, dict[str, int]] | None:
    """The last checkpoint and where in the loop it was saved; None when there is none."""
    found = sorted(folder.glob(f"step-*/{_POSITION}"))
    return (found[-1].parent, json.loads(found[-1].read_text(encoding="utf-8"))) if found else None


def save(state: Mapping[str, Any], folder: Path) -> None:
    """Writes `state_dict()` of each object, once for all ranks."""
    if find_rank(os.environ) != 0:
        return
    content = {name: part.state_dict() for name, part in state.items()}
    with (folder / _STATE).open("wb") as file:
        sys.modules["torch"].save(content, file)
        file.flush()
        os.fsync(file.fileno())


def load(state: Mapping[str, Any], folder: Path) -> None:
    """Puts back what `save` wrote; ValueError when it was another loop's."""
    # weights_only: a checkpoint is data, and loading it must not run code.
    content = sys.modules["torch"].load(folder / _STATE, map_location="cpu", weights_only=True)
    if missing := sorted(state.keys() - content.keys()):
        raise ValueError(f"{folder} holds no state of {', '.join(missing)}: another loop saved it")
    for name, part in state.items():
        part.load_state_dict(content[name])

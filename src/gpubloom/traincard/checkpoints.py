"""The index of a run's checkpoints: what was saved when, how large it is, and which one is best."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpubloom.traincard.atomic_write import read_json_object, replace_file
from gpubloom.traincard.layout import PROTOCOL_VERSION
from gpubloom.traincard.names import series_name
from gpubloom.traincard.number_encoding import decode_number, to_json


class Checkpoints:
    """The checkpoints that there are, and the best of them: a fold over events, without files."""

    def __init__(self, entries: Iterable[dict[str, Any]] = (), said_best: str | None = None) -> None:
        self.entries: list[dict[str, Any]] = list(entries)
        self.said_best = said_best

    def add(self, record: Mapping[str, Any], attempt: int) -> None:
        """Takes in a `checkpoint` event; saving to the same path again replaces the entry."""
        entry = {key: record.get(key) for key in ("step", "path", "size", "t", "metrics", "metadata")}
        entry["attempt"] = attempt
        self.entries = [old for old in self.entries if old["path"] != entry["path"]] + [entry]
        if record.get("best"):
            self.said_best = entry["path"]

    def remove(self, path: str) -> None:
        """Takes in a `checkpoint_removed` event."""
        self.entries = [old for old in self.entries if old["path"] != path]
        if self.said_best == path:
            self.said_best = None

    def best(self) -> str | None:
        """The one that was last said to be best, or the one with the lowest evaluation loss."""
        if self.said_best is not None:
            return self.said_best
        losses = [(loss, entry["path"]) for entry in self.entries if (loss := _eval_loss(entry)) is not None]
        return min(losses, key=lambda found: found[0])[1] if losses else None


class CheckpointIndex(Checkpoints):
    """checkpoints.json of one run. Changes are kept until `save` could write them."""

    def __init__(self, path: Path) -> None:
        # Attempts share the index: what an earlier one saved is still there.
        before = read_json_object(path) or {}
        said_best = before.get("best") if before.get("best_was_said") else None
        super().__init__(before.get("checkpoints") or (), said_best)
        self._path = path
        self._changed = False

    def add(self, record: Mapping[str, Any], attempt: int) -> None:
        super().add(record, attempt)
        self._changed = True

    def remove(self, path: str) -> None:
        super().remove(path)
        self._changed = True

    def write_again(self) -> None:
        """The file was deleted: `save` writes it although nothing changed."""
        self._changed = bool(self.entries)

    def save(self) -> None:
        """Writes the index if it changed; OSError leaves the change for the next time."""
        if not self._changed:
            return
        content = {
            "v": PROTOCOL_VERSION,
            "best": self.best(),
            "best_was_said": self.said_best is not None,
            "checkpoints": self.entries,
        }
        replace_file(self._path, to_json(content))
        self._changed = False


def _eval_loss(entry: dict[str, Any]) -> float | None:
    for name, value in (entry.get("metrics") or {}).items():
        loss = decode_number(value)
        if series_name(name) == "eval/loss" and isinstance(loss, (int, float)) and loss == loss:
            return float(loss)
    return None


def training_metadata(
    *,
    seconds: float,
    parameters: int,
    trained_parameters: int,
    method: str | None = None,
    precision: str | None = None,
    optimizations: Iterable[str] = (),
) -> dict[str, Any]:
    """What a trainer says of a checkpoint in `metadata`, under the names that viewers know.

    `seconds` is the training time that led to it, evaluations and earlier checkpoints included; of
    attempts before this one, up to the checkpoint that it continued from.
    """
    found: dict[str, Any] = {
        "training_seconds": round(seconds, 3),
        "parameters": parameters,
        "trained_parameters": trained_parameters,
        "method": method,
        "precision": precision,
        "optimizations": list(optimizations),
    }
    return {name: value for name, value in found.items() if value is not None and value != []}


def size_on_disk(path: Path) -> int | None:
    """Bytes of a checkpoint file or folder; None when it cannot be seen from here (a bucket)."""
    try:
        if path.is_dir():
            return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
        return path.stat().st_size
    except OSError:
        return None


def path_in_run(path: str | os.PathLike[str], run_dir: Path) -> str:
    """A checkpoint's path as the protocol stores it: relative inside the run, so that a run can be moved."""
    text = os.fspath(path)
    if "://" in text:
        return text
    try:
        return Path(text).absolute().relative_to(run_dir.absolute()).as_posix()
    except ValueError:
        return str(Path(text).absolute())

"""What of a run directory is news: turns what changed since the last parcel into the next one.

News goes first: what grows, then small files. Large files follow in pieces, as far as there is room; a
checkpoint folder is declared complete when all its files were sent, and only then is it in the index.
"""

import copy
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpubloom.agent.remote.growth import Growth, grows, reached
from gpubloom.agent.remote.slow_lane import SlowLane
from gpubloom.traincard.mirror.contents import Seen, files_of, is_large

_CONTROL = "traincard/control.json"
_INDEX = "traincard/checkpoints.json"
_LATEST = "traincard/latest.json"
_SMALL_BYTES = 1 << 20

State = dict[str, Any]


class Packer:
    """`state` values are plain JSON; what `pack` returns becomes the state once the parcel is delivered.

    `settle_seconds`: how long a large file must look the same before it is sent. Scripts write theirs in
    place, and half of a checkpoint must not replace a whole one.
    """

    def __init__(
        self,
        run_dir: Path,
        part_bytes: int,
        settle_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run_dir, self._part_bytes = run_dir, part_bytes
        self._settle_seconds, self._clock = settle_seconds, clock
        self._missing: set[str] = set()
        self._gone: set[str] = set()
        self._since: dict[str, tuple[Seen, float]] = {}
        self._slow = SlowLane(run_dir)

    @staticmethod
    def first_state(run_dir: Path, known: Mapping[str, str]) -> State:
        """Before anything was sent: `known` are the files of the bundle, with their hashes."""
        files = files_of(run_dir)
        names = [name for name in known if name in files and name != _CONTROL]
        return {
            "sent": {name: _as_list(files[name]) for name in names if not grows(name)},
            "hashes": {name: known[name] for name in names},
            "grown": {name: reached(run_dir, name) for name in names if grows(name)},
            "folders": [],
            "large": None,
        }

    def pack(
        self, before: State, *, large: bool, final: bool
    ) -> tuple[list[dict[str, Any]], bytes, State] | None:
        """Entries, bytes and the state afterwards; None when there is no news. `large`: large files, too."""
        state = copy.deepcopy(before)
        files = {name: seen for name, seen in files_of(self._run_dir).items() if name != _CONTROL}
        growth = Growth(self._run_dir, state, self._missing)
        entries, grown = growth.collect(files, self._part_bytes, final=final)
        body = bytearray(grown)
        self._small(state, files, entries, body)
        settled = self._settled(files, final)
        slow_names = sorted(
            name
            for name, seen in files.items()
            if name in settled and self._is_slow(name, seen) and state["sent"].get(name) != _as_list(seen)
        )
        if large:
            more, content = self._slow.collect(state, files, slow_names, self._part_bytes - len(body))
            entries += more
            body += content
            entries += self._folders(state, files)
        more, content = self._index(state, files)
        entries += more
        body += content
        entries += self._removed(state, files, final)
        return (entries, bytes(body), state) if entries else None

    def tree(self, state: State) -> dict[str, list[Any]]:
        """Size and hash of every file as it is now."""
        tree = {}
        for name, seen in sorted(files_of(self._run_dir).items()):
            if name == _CONTROL:
                continue
            is_known = name in state["hashes"] and state["sent"].get(name) == _as_list(seen)
            tree[name] = [
                seen.size,
                state["hashes"][name] if is_known else _hash_of(self._run_dir / name),
            ]
        return tree

    def _settled(self, files: Mapping[str, Seen], final: bool) -> set[str]:
        now = self._clock()
        before, self._since = self._since, {}
        for name, seen in files.items():
            known = before.get(name)
            self._since[name] = known if known is not None and known[0] == seen else (seen, now)
        return {n for n, (_, since) in self._since.items() if final or now - since >= self._settle_seconds}

    def _is_slow(self, name: str, seen: Seen) -> bool:
        return not grows(name) and (is_large(name, seen.size) or seen.size > _SMALL_BYTES)

    def _small(
        self, state: State, files: Mapping[str, Seen], entries: list[dict[str, Any]], body: bytearray
    ) -> None:
        names = [n for n, s in files.items() if not grows(n) and not self._is_slow(n, s) and n != _INDEX]
        for name in sorted(names, key=lambda name: (name == _LATEST, name)):
            seen = files[name]
            if state["sent"].get(name) == _as_list(seen) or len(body) + seen.size > self._part_bytes:
                continue
            entry, content = self._whole(state, name, seen)
            if entry is not None:
                entries.append(entry)
                body += content

    def _whole(self, state: State, name: str, seen: Seen) -> tuple[dict[str, Any] | None, bytes]:
        try:
            content = (self._run_dir / name).read_bytes()
        except OSError:
            return None, b""
        # If it changed while it was read, its look before that is not the one of now, and it goes again.
        state["sent"][name] = _as_list(seen)
        state["hashes"].pop(name, None)
        return {"kind": "whole", "path": name, "size": len(content)}, content

    def _index(self, state: State, files: Mapping[str, Seen]) -> tuple[list[dict[str, Any]], bytes]:
        """The index of checkpoints, once the other side has all that it names."""
        seen = files.get(_INDEX)
        if seen is None or state["sent"].get(_INDEX) == _as_list(seen):
            return [], b""
        before = copy.deepcopy(state)
        entry, content = self._whole(state, _INDEX, seen)
        try:
            named = [str(found["path"]) for found in json.loads(content)["checkpoints"]]
        except (ValueError, KeyError, TypeError):
            named = []
        waits = any(
            (name in files and state["sent"].get(name) != _as_list(files[name]))
            or ((self._run_dir / name).is_dir() and _is_folder(name) and name not in state["folders"])
            for name in named
        )
        if entry is None or waits:
            state.update(before)
            return [], b""
        return [entry], content

    def _folders(self, state: State, files: Mapping[str, Seen]) -> list[dict[str, Any]]:
        entries = []
        checkpoints = self._run_dir / "checkpoints"
        folders = sorted(checkpoints.iterdir()) if checkpoints.is_dir() else []
        for folder in folders:
            name = f"checkpoints/{folder.name}"
            if folder.name.startswith(".") or not folder.is_dir() or name in state["folders"]:
                continue
            inside = [file for file in files if file.startswith(f"{name}/")]
            if all(state["sent"].get(file) == _as_list(files[file]) for file in inside):
                state["folders"].append(name)
                entries.append({"kind": "folder", "path": name})
        return entries

    def _removed(self, state: State, files: Mapping[str, Seen], final: bool) -> list[dict[str, Any]]:
        gone = {name for name in state["sent"] if name not in files}
        gone |= {name for name in state["folders"] if not (self._run_dir / name).is_dir()}
        # A folder that is renamed while it is listed looks deleted for one pass.
        sure = gone if final else gone & self._gone
        self._gone = gone
        for name in sure:
            state["sent"].pop(name, None)
            state["hashes"].pop(name, None)
        state["folders"] = [name for name in state["folders"] if name not in sure]
        return [{"kind": "remove", "path": name} for name in sorted(sure)]


def _is_folder(name: str) -> bool:
    return name.startswith("checkpoints/") and name.count("/") == 1


def _as_list(seen: Seen) -> list[int]:
    return [seen.size, seen.modified_ns, seen.inode]


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

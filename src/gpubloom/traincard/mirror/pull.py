"""Brings a mirrored run to this machine, bit by bit, so that any reader can read it.

The folder only ever goes forward: whole files are replaced in one step, and a tail grows. Pulling again
fetches what is new.
"""

import os
from pathlib import Path, PurePosixPath

from gpubloom.traincard.mirror.contents import GROWTH, is_tail
from gpubloom.traincard.mirror.store import Bucket, MirrorError, StoredObject
from gpubloom.traincard.mirror.tails import offset_of, stream_of
from gpubloom.traincard.stream import parse_start

_LARGE_FOLDERS = ("checkpoints/", "model/")


def pull(url: str, folder: str | os.PathLike[str], *, weights: bool = False) -> int:
    """Makes `folder` what the mirror is now; returns how many files changed.

    `weights`: checkpoints and the final model, too. MirrorError: there is no run at this address.
    """
    return Puller(url, folder, weights=weights).once()


class Puller:
    """Pulls again and again, over one connection."""

    def __init__(self, url: str, folder: str | os.PathLike[str], *, weights: bool = False) -> None:
        self._url = url
        self._bucket = Bucket(url)
        self._folder = Path(folder)
        self._weights = weights

    def once(self) -> int:
        stored = self._bucket.objects()
        if not any(name.startswith("traincard/") for name in stored):
            raise MirrorError(f"There is no run at {self._url}: it has no traincard folder.")
        count = 0
        for name, found in sorted(stored.items()):
            if name.startswith(GROWTH) or not self._is_wanted(name):
                continue
            try:
                changed = self._pull_tail(name, stored) if is_tail(name) else self._pull_file(name, found)
            except FileNotFoundError:
                # Sealed or replaced since it was listed; the next pull sees it under its new name.
                continue
            count += changed
        return count

    def _is_wanted(self, name: str) -> bool:
        parts = PurePosixPath(name).parts
        if ".." in parts or PurePosixPath(name).is_absolute() or "\\" in name:
            raise MirrorError(
                f"{self._url} holds {name!r}, which would lie outside the folder; nothing is pulled."
            )
        return self._weights or not name.startswith(_LARGE_FOLDERS)

    def _pull_file(self, name: str, found: StoredObject) -> bool:
        path = self._folder / name
        modified = int(found.modified.timestamp() * 1e9)
        if path.exists() and path.stat().st_size == found.size and path.stat().st_mtime_ns == modified:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.pulling")
        with temporary.open("wb") as file:
            for piece in self._bucket.get_pieces(name):
                file.write(piece)
        os.utime(temporary, ns=(modified, modified))
        temporary.replace(path)
        return True

    def _pull_tail(self, name: str, stored: dict[str, StoredObject]) -> bool:
        path = self._folder / name
        here = path.read_bytes() if path.exists() else b""
        known = parse_start(here.partition(b"\n")[0] + b"\n")
        whole = stored[name].size
        there = parse_start(self._bucket.first_line(name))
        if there is None:
            return False
        content = here if known and known[0] == there[0] else b""
        if len(content) < whole:
            content = self._bucket.get(name)
            # It may have been sealed and replaced since its first line was read.
            there = parse_start(content.partition(b"\n")[0] + b"\n") or there
        for piece in sorted(piece for piece in stored if stream_of(piece) == str(there[0])):
            skip = len(content) - offset_of(piece)
            if 0 <= skip < stored[piece].size:
                content += self._bucket.get(piece)[skip:]
        if content == here:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.pulling")
        temporary.write_bytes(content)
        temporary.replace(path)
        return True

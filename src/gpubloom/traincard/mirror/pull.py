"""Download a mirrored run to this machine, so that any reader can read it.

The folder only moves forward: files are replaced in one step, and a tail grows. Pulling again downloads
what is new.
"""

import os
from pathlib import Path

from gpubloom.traincard.mirror.store import Bucket, MirrorError, StoredObject
from gpubloom.traincard.mirror.tails import GROWTH, offset_of, stream_of
from gpubloom.traincard.stream import parse_start
from gpubloom.traincard.sync.apply import replacing
from gpubloom.traincard.sync.files import LARGE_FOLDERS, is_inside, is_tail


def pull(url: str, folder: str | os.PathLike[str], *, weights: bool = False) -> int:
    """Make `folder` what the mirror is now; returns how many files changed.

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
            raise MirrorError(
                "run_not_found", f"There is no run at {self._url}: the traincard folder is missing."
            )
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
        if not is_inside(name):
            raise MirrorError(
                "path_outside_folder",
                f"{self._url} contains {name!r}, which points outside the folder. The download was stopped.",
            )
        return self._weights or not name.startswith(LARGE_FOLDERS)

    def _pull_file(self, name: str, found: StoredObject) -> bool:
        path = self._folder / name
        modified = int(found.modified.timestamp() * 1e9)
        if path.exists() and path.stat().st_size == found.size and path.stat().st_mtime_ns == modified:
            return False
        with replacing(path, modified_ns=modified) as file:
            for piece in self._bucket.get_pieces(name):
                file.write(piece)
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
        with replacing(path) as file:
            file.write(content)
        return True

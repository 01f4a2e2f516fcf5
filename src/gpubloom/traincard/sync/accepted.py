"""What a receiver accepts: allow-lists of paths per kind of job, the form of entries, and limits.

Everything here is decided by the receiver. A sender chooses names, numbers and bytes; whatever is not on the
list, not of this form or beyond a limit is refused before a byte of it is stored.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

from gpubloom.traincard.sync.files import is_checkpoint_folder, is_valid_name

# What every run reports, whatever it trains (docs/run-directory.md).
_REPORTS = (
    r"traincard/(events(\.rank\d{1,9})?\.jsonl"
    r"|segments/a\d{1,9}\.r\d{1,9}\.s\d{1,9}\.(jsonl|buckets\.json)"
    r"|attempts/\d{1,9}(\.rank\d{1,9})?|latest\.json|checkpoints\.json|metrics\.prom)"
    r"|logs/[^/]+\.log"
)
# Nothing is protected by this list: it only tells an attempt to change the server's own files, which ends the
# attempt, from a file that a training happened to write beside its results, which is left where it is.
_SERVER_FILES = re.compile(
    r"(agent|inputs)(/.*)?|traincard/(control\.(json|lock)|lock(\.rank\d+)?)"
    r"|(config|config\.before-\d+|plan|task|brought|serve)\.json|(train|task)\.py|requirements\.txt"
    r"|hub-token",
    re.ASCII,
)

EntryKind = Literal["whole", "grow", "rename", "part", "done", "abandon", "folder", "remove"]
_WITH_CONTENT = {"whole", "grow", "part"}
_SHA256 = re.compile(r"[0-9a-f]{64}")
# No file of any file system is longer.
_LARGEST_NUMBER = (1 << 63) - 1


class RefusedEntryError(ValueError):
    """An entry asks for something that no agent of ours asks for, or its content is damaged."""


@dataclass(frozen=True)
class AcceptedPaths:
    """The allow-list of one kind of job: what matches `pattern`, less `kept`, the files of the job's owner,
    and `added`."""

    pattern: re.Pattern[str]
    kept: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()

    def without(self, names: Iterable[str]) -> "AcceptedPaths":
        return replace(self, kept=self.kept | set(names))

    def including(self, names: Iterable[str]) -> "AcceptedPaths":
        return replace(self, added=self.added | set(names))

    def __contains__(self, name: str) -> bool:
        return name in self.added or (self.pattern.fullmatch(name) is not None and name not in self.kept)


def _paths(pattern: str) -> AcceptedPaths:
    return AcceptedPaths(re.compile(f"{_REPORTS}|{pattern}", re.ASCII))


TRAINING_PATHS = _paths(r"(checkpoints|model)/.+")
# A person's own script runs in `work`; once another machine has sent files, only in the sandbox here.
SCRIPT_PATHS = _paths(r"(checkpoints|model|work)/.+")
# A task has an answer; an export has the model's files as well.
TASK_PATHS = _paths(r"result\.json|model/.+")
# A Reporter on any machine sends what it reports, and no files of the training.
SENT_RUN_PATHS = AcceptedPaths(re.compile(_REPORTS, re.ASCII))


@dataclass(frozen=True)
class Limits:
    """What one sender may send. `entries` and `batch_bytes` are of one batch, `run_…` of the whole directory.

    `bytes_per_second`: what comes faster than this waits in the bucket. An entry counts as `entry_bytes`
    bytes, because each is brought to disk by itself.
    """

    entries: int = 20_000
    batch_bytes: int = 128 << 20
    run_bytes: int = 500 * 10**9
    run_files: int = 500_000
    bytes_per_second: float = 256e6
    burst_bytes: float = 4e9
    entry_bytes: int = 4096


@dataclass(frozen=True)
class Entry:
    """One entry of a batch, of a form that the receiver knows. `size`: how many bytes of the body it has."""

    kind: EntryKind
    path: str
    size: int = 0
    to: str = ""
    offset: int = 0
    fresh: bool = False
    total: int = 0
    sha256: str = ""

    @classmethod
    def parse(cls, given: object) -> Self:
        """RefusedEntryError: no agent of ours writes such an entry."""
        if not isinstance(given, Mapping) or given.get("kind") not in get_args(EntryKind):
            raise RefusedEntryError(f"{_short(given)} is not an entry that this receiver knows")
        kind: EntryKind = given["kind"]
        entry = cls(
            kind,
            _name(given, "path"),
            size=_number(given, "size") if kind in _WITH_CONTENT else 0,
            to=_name(given, "to") if kind == "rename" else "",
            offset=_number(given, "offset") if kind in {"grow", "part"} else 0,
            fresh=given.get("fresh") is True,
            total=_number(given, "total") if kind == "done" else 0,
            sha256=_digest(given) if kind == "done" else "",
        )
        if kind == "folder" and not is_checkpoint_folder(entry.path):
            raise RefusedEntryError(f"{entry.path!r} is not a checkpoint folder")
        # A sealed event stream, a rotated log: nothing that an agent renames changes its folder at the top.
        if kind == "rename" and entry.path.partition("/")[0] != entry.to.partition("/")[0]:
            raise RefusedEntryError(f"{entry.path!r} cannot be renamed to {entry.to!r}")
        return entry

    @property
    def names(self) -> tuple[str, ...]:
        """The names that it changes."""
        return (self.path, self.to) if self.kind == "rename" else (self.path,)


def is_accepted(name: str, accepted: AcceptedPaths) -> bool:
    """Whether the sender may write a file; RefusedEntryError when it tries what no agent does."""
    if name in accepted:
        return True
    if _SERVER_FILES.fullmatch(name):
        raise RefusedEntryError(f"the sender is not allowed to write {name!r}")
    return False


def _name(given: Mapping[str, Any], field: str) -> str:
    name = given.get(field)
    if not isinstance(name, str) or not is_valid_name(name):
        raise RefusedEntryError(f"{_short(name)} is not a valid file name in a run directory")
    return name


def _number(given: Mapping[str, Any], field: str) -> int:
    number = given.get(field)
    if type(number) is not int or not 0 <= number <= _LARGEST_NUMBER:
        raise RefusedEntryError(f"the field {field} of an entry is {_short(number)}")
    return number


def _digest(given: Mapping[str, Any]) -> str:
    digest = given.get("sha256")
    if not isinstance(digest, str) or _SHA256.fullmatch(digest) is None:
        raise RefusedEntryError(f"the field sha256 of an entry is {_short(digest)}")
    return digest


def _short(value: object) -> str:
    """For a sentence that a log and a database can hold."""
    if isinstance(value, str):
        return ascii(value[:100])
    return ascii(value)[:100] if isinstance(value, int | float | None) else f"a {type(value).__name__}"

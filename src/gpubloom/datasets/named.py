"""Datasets by name: fetched once into a cache, checked, and copied to where a job reads them.

`named.json` says where each lies, its licence, and the SHA-256 where somebody has checked it. Where nobody
has, the first one fetched here is written down (`record.json` in the cache), and another is refused later.
`BLOOM_DATASETS` names a file of the same form with one's own; of two with one name, one's own counts.
"""

import gzip
import json
import os
import re
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from gpubloom.datasets.downloading import (
    FetchProblem,
    FetchProgress,
    Remote,
    download,
    fetching_alone,
    on_disk,
)

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,60}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
_RECORD = "record.json"


@dataclass(frozen=True)
class NamedFile:
    """One file. `sha256` and `bytes` are of what is fetched; a packed one is stored unpacked, as `name`."""

    name: str
    address: str
    sha256: str | None = None
    bytes: int | None = None
    packed: Literal["gzip"] | None = None


@dataclass(frozen=True)
class NamedDataset:
    """A dataset that people know by a name."""

    name: str
    title: str
    licence: str
    about: str
    files: tuple[NamedFile, ...]


@dataclass(frozen=True)
class CacheEntry:
    """A file of the cache. `first_seen`: it has no published hash, so its first one is trusted."""

    sha256: str
    bytes: int
    stored_bytes: int
    address: str
    fetched_on: str
    first_seen: bool


@dataclass(frozen=True)
class Prepared:
    """A dataset where a job reads it."""

    folder: Path
    files: tuple[Path, ...]
    notes: tuple[str, ...]


def named_datasets(own: Path | None = None) -> dict[str, NamedDataset]:
    """All that are known, one's own over ours. `own`: what BLOOM_DATASETS names."""
    found = _table(json.loads((files("gpubloom.datasets") / "named.json").read_text(encoding="utf-8")), "")
    path = own or (Path(os.environ["BLOOM_DATASETS"]) if os.environ.get("BLOOM_DATASETS") else None)
    if path is not None:
        try:
            rows = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as problem:
            raise FetchProblem(
                "invalid_dataset_table", f"{path} is not a valid table of datasets: {problem}."
            ) from None
        found |= _table(rows, f"{path}: ")
    return found


def prepare_named(
    name: str,
    folder: Path,
    *,
    home: Path | None = None,
    progress: FetchProgress | None = None,
    accept_change: bool = False,
) -> Prepared:
    """Puts the files of a dataset into folder/NAME, which appears when all are there. FetchProblem says what
    stands in the way. `accept_change`: take what its source has now, though it was different before."""
    dataset = known(name)
    notes = fetch_named(dataset, home=home, progress=progress, accept_change=accept_change)
    target, cache = folder / name, cache_of(name, home)
    names = [file.name for file in dataset.files]
    if not all((target / file).is_file() for file in names):
        with on_disk(target):
            hidden = folder / f".preparing-{name}-{os.getpid()}"
            shutil.rmtree(hidden, ignore_errors=True)
            hidden.mkdir(parents=True)
            try:
                for file in names:
                    # A copy: what a job does to its data must not reach the cache.
                    shutil.copyfile(cache / file, hidden / file)
                shutil.rmtree(target, ignore_errors=True)
                hidden.rename(target)
            finally:
                shutil.rmtree(hidden, ignore_errors=True)
    return Prepared(target, tuple(target / file for file in names), notes)


def fetch_named(
    dataset: NamedDataset,
    *,
    home: Path | None = None,
    progress: FetchProgress | None = None,
    accept_change: bool = False,
) -> tuple[str, ...]:
    """Fetches what the cache does not have; notes say what was believed without a check."""
    cache = cache_of(dataset.name, home)
    notes = []
    with on_disk(cache), fetching_alone(cache):
        record = _read_record(cache)
        for file in dataset.files:
            kept = record.get(file.name)
            if kept is None or not _is_there(cache / file.name, file, kept):
                before = None if accept_change or kept is None else kept
                kept = _fetch(file, cache, before, progress)
                record[file.name] = kept
                _write_record(cache, record)
            if kept.first_seen:
                notes.append(
                    f"No checksum is known for {dataset.name}/{file.name}. Later downloads must match the "
                    f"file downloaded on {kept.fetched_on}: SHA-256 {kept.sha256}."
                )
    return tuple(notes)


def known(name: str) -> NamedDataset:
    """FetchProblem for an unknown name."""
    every = named_datasets()
    if name not in every:
        raise FetchProblem(
            "not_found", f"Unknown dataset {name!r}; available datasets: {', '.join(sorted(every))}."
        )
    return every[name]


def cache_of(name: str, home: Path | None = None) -> Path:
    """Where a dataset is kept: BLOOM_HOME/cache/datasets/NAME."""
    home = home or Path(os.environ.get("BLOOM_HOME") or Path.home() / ".gpubloom").expanduser()
    return home / "cache" / "datasets" / name


def _fetch(
    file: NamedFile, cache: Path, before: CacheEntry | None, progress: FetchProgress | None
) -> CacheEntry:
    # An address that changed is another file, which nobody compared with the old one.
    pinned = before.sha256 if before is not None and before.address == file.address else None
    expected = file.sha256 or pinned
    remote = Remote(file.address, expected, file.bytes)
    arrived = cache / f".{file.name}.part"
    try:
        digest, size = download(remote, arrived, progress)
    except FetchProblem as problem:
        if problem.code != "damaged" or file.sha256 or before is None:
            raise
        raise FetchProblem(
            "damaged",
            f"{file.address} changed after {before.fetched_on}: its SHA-256 differs. If this change is "
            "expected, download it again with --accept-change.",
        ) from None
    if file.packed is not None:
        arrived = _unpacked(arrived, cache / f".{file.name}.unpacked", file)
    stored = arrived.stat().st_size
    arrived.chmod(0o444)
    arrived.replace(cache / file.name)
    day = datetime.now(UTC).date().isoformat()
    return CacheEntry(digest, size, stored, file.address, day, first_seen=file.sha256 is None)


def _unpacked(packed: Path, target: Path, file: NamedFile) -> Path:
    try:
        with gzip.open(packed) as source, target.open("wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        target.unlink(missing_ok=True)
        packed.unlink(missing_ok=True)
        raise FetchProblem("damaged", f"{file.address} cannot be unpacked: {problem}.") from None
    except OSError:
        target.unlink(missing_ok=True)
        raise
    packed.unlink()
    return target


def _is_there(path: Path, file: NamedFile, kept: CacheEntry) -> bool:
    """Whole as far as its size tells; one that the table describes otherwise is fetched anew."""
    same = path.is_file() and path.stat().st_size == kept.stored_bytes
    return same and kept.address == file.address and (file.sha256 or kept.sha256) == kept.sha256


def _read_record(cache: Path) -> dict[str, CacheEntry]:
    try:
        found = json.loads((cache / _RECORD).read_text(encoding="utf-8"))
        return {name: CacheEntry(**entry) for name, entry in found.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError) as problem:
        raise FetchProblem(
            "unreadable_file",
            f"{cache / _RECORD} cannot be read ({problem}): delete {cache} and download the dataset again.",
        ) from None


def _write_record(cache: Path, record: Mapping[str, CacheEntry]) -> None:
    part = cache / f".{_RECORD}.part"
    part.write_text(json.dumps({name: asdict(kept) for name, kept in record.items()}, indent=1) + "\n")
    part.replace(cache / _RECORD)


def _table(rows: Any, where: str) -> dict[str, NamedDataset]:
    try:
        found = [
            NamedDataset(
                row["name"],
                row.get("title", row["name"]),
                row.get("licence", "not stated"),
                row.get("about", ""),
                tuple(NamedFile(**file) for file in row["files"]),
            )
            for row in rows
        ]
    except (KeyError, TypeError, AttributeError) as problem:
        raise FetchProblem(
            "invalid_dataset_table",
            f"{where}a dataset needs a name and files: {problem} is missing or wrong.",
        ) from None
    for dataset in found:
        names = [file.name for file in dataset.files]
        if not _NAME.fullmatch(dataset.name) or not names or len(set(names)) < len(names):
            raise FetchProblem(
                "refused",
                f"{where}{dataset.name!r} is not a valid dataset name, or the dataset has no files or two "
                "files with the same name.",
            )
        for file in dataset.files:
            plain = _FILE.fullmatch(file.name) and file.name != _RECORD
            if not plain or not file.address.startswith(("https://", "http://")):
                raise FetchProblem(
                    "refused",
                    f"{where}{dataset.name}/{file.name}: a file needs a name without folders and an http(s) "
                    "address.",
                )
    return {
        dataset.name: replace(
            dataset, files=tuple(replace(file, sha256=_lower(file)) for file in dataset.files)
        )
        for dataset in found
    }


def _lower(file: NamedFile) -> str | None:
    return file.sha256.casefold() if file.sha256 else None

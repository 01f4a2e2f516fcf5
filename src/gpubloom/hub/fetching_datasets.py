"""Datasets by their id on a hub: the files of one split, as one file that `gpubloom.datasets` opens."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gpubloom.datasets import Source
from gpubloom.hub.dataset_files import choose, find_layout
from gpubloom.hub.folders import Progress, download_all, fetching_folder, must_have_room
from gpubloom.hub.problems import HubProblem
from gpubloom.hub.repositories import RemoteRepository

_BATCH_ROWS = 1_024
_LONGEST_README = 4 << 20


@dataclass(frozen=True)
class FetchedDataset:
    """One file with all rows of a split. `notes` say what was decided or lost on the way."""

    repository: str
    revision: str
    config: str
    split: str
    path: Path
    notes: tuple[str, ...]


def fetch_dataset(
    repository: str,
    target: Path,
    *,
    config: str | None = None,
    split: str | None = None,
    revision: str | None = None,
    token: str | None = None,
    progress: Progress | None = None,
) -> FetchedDataset:
    """Fetches a split into the folder `target`, which must not exist yet and then holds one file."""
    if target.exists():
        raise HubProblem("refused", f"{target} exists already: choose another folder.")
    remote = RemoteRepository.open(repository, "dataset", revision=revision, token=token)
    with fetching_folder(target, remote.commit) as folder:
        name, part, files = choose(
            find_layout(remote.files, _readme(remote, folder)), repository, config, split
        )
        download_all(remote, files, folder / "parts", progress)
        parts = [folder / "parts" / file.path for file in files]
        whole = folder / "whole"
        shutil.rmtree(whole, ignore_errors=True)
        whole.mkdir()
        stem = f"{repository.rpartition('/')[2]}-{part}"
        path, notes = _join(parts, whole / stem, repository)
        whole.rename(target)
        shutil.rmtree(folder)
    if len(files) > 1:
        notes = (f"{len(files)} files were joined into one.", *notes)
    return FetchedDataset(repository, remote.commit, name, part, target / path.name, tuple(notes))


def _readme(remote: RemoteRepository, folder: Path) -> str:
    file = remote.file("README.md")
    if file is None or file.size > _LONGEST_README:
        return ""
    readme = folder / "about" / "README.md"
    remote.download(file, readme, lambda count: None)
    return readme.read_text(encoding="utf-8", errors="replace")


def _join(parts: Sequence[Path], stem: Path, repository: str) -> tuple[Path, tuple[str, ...]]:
    """One file of all parts; what cannot stay in its format becomes JSON lines."""
    kinds = {part.suffix for part in parts}
    if len(parts) == 1:
        target = stem.with_name(stem.name + parts[0].suffix)
        parts[0].rename(target)
        return target, ()
    must_have_room(stem.parent, sum(part.stat().st_size for part in parts), repository)
    if kinds == {".parquet"} and (joined := _join_parquet(parts, stem.with_name(stem.name + ".parquet"))):
        return joined, ()
    target = stem.with_name(stem.name + ".jsonl")
    notes: list[str] = []
    with target.open("wb") as out:
        for part in parts:
            if part.suffix == ".jsonl" and _is_plain_utf8(part):
                _append_lines(part, out)
            else:
                notes += _append_rows(part, out)
    return target, tuple(notes)


def _join_parquet(parts: Sequence[Path], target: Path) -> Path | None:
    """Row group by row group; None when the parts do not have the same columns."""
    import pyarrow.parquet

    schema = pyarrow.parquet.read_schema(parts[0])
    if any(not pyarrow.parquet.read_schema(part).equals(schema) for part in parts[1:]):
        return None
    with pyarrow.parquet.ParquetWriter(target, schema) as writer:
        for part in parts:
            with pyarrow.parquet.ParquetFile(part, pre_buffer=False) as file:
                for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                    writer.write_batch(batch)
    return target


def _is_plain_utf8(part: Path) -> bool:
    """Whether bytes may simply follow those of another file: no mark at the beginning, no other encoding."""
    with part.open("rb") as file:
        head = file.read(1 << 16)
    return not head.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")) and b"\0" not in head


def _append_lines(part: Path, out: IO[bytes]) -> None:
    with part.open("rb") as file:
        last = b"\n"
        while piece := file.read(1 << 20):
            out.write(piece)
            last = piece
        if not last.endswith(b"\n"):
            out.write(b"\n")


def _append_rows(part: Path, out: IO[bytes]) -> list[str]:
    """Rows of any format as JSON lines; those that cannot be read are counted and told."""
    lost, first = 0, ""
    for row in Source.open(part).rows():
        if row.values is None:
            lost += 1
            first = first or f"row {row.number}: {row.problem}"
            continue
        out.write(json.dumps(row.values, ensure_ascii=False, default=str).encode() + b"\n")
    return (
        [f"{lost:,} rows of {part.name} cannot be read and are left out; the first is {first}."]
        if lost
        else []
    )

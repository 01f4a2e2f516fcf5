"""Models and datasets by their hub id, in folders that are complete or absent.

A folder is downloaded under a hidden name and then renamed. The hidden folder is named after the commit and
stays when a download stops, so that the next download resumes there. One process at a time downloads to a
folder.

Of models: safetensors, configuration and tokenizer; never pickles, never code. Of datasets: the files of one
split, chosen by the README or by their names, joined to one file that `gpubloom.datasets` opens.
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gpubloom.datasets import SUFFIXES, Source
from gpubloom.datasets.downloading import must_have_room
from gpubloom.datasets.source import shown_suffixes
from gpubloom.hub.problems import HubProblem
from gpubloom.hub.repositories import RemoteFile, RemoteRepository

# Bytes downloaded, and bytes in total.
Progress = Callable[[int, int], None]
_PREFIX = ".fetching-"

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_WEIGHTS = re.compile(r"(model|adapter_model)(-\d+-of-\d+)?\.safetensors")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_TEXTS = {"merges.txt", "vocab.txt", "tokenizer.model", "README.md", "LICENSE", "LICENSE.txt", "NOTICE"}
DEFAULT = "default"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")
# The words by which files are told apart, the longest first.
_SPLIT_WORDS = {
    "train": ("training", "train"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("testing", "test", "evaluation", "eval"),
}
_FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)\n---\s*(\n|\Z)", re.DOTALL)
# By configuration, then by split.
Layout = dict[str, dict[str, list[RemoteFile]]]
_BATCH_ROWS = 1_024
_LONGEST_README = 4 << 20


def fetch_files(
    repository: RemoteRepository, files: Sequence[RemoteFile], target: Path, progress: Progress | None = None
) -> None:
    """Downloads files into a folder that appears when all of them are complete and verified."""
    with fetching_folder(target, repository.commit) as folder:
        download_all(repository, files, folder, progress)
        folder.rename(target)


def download_all(
    repository: RemoteRepository, files: Sequence[RemoteFile], folder: Path, progress: Progress | None
) -> None:
    """Downloads all files into a folder, resuming partial ones; the disk must have space for the rest."""
    folder.mkdir(exist_ok=True)
    total = sum(file.size for file in files)
    here = sum(path.stat().st_size for file in files if (path := folder / file.path).is_file())
    must_have_room(folder, total - here, repository.id, HubProblem)
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(done, total)

    for file in files:
        repository.download(file, folder / file.path, count)


@contextmanager
def fetching_folder(target: Path, commit: str) -> Iterator[Path]:
    """The hidden folder of a target; hidden folders of other commits are removed."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden = target.parent / f"{_PREFIX}{target.name}-{commit[:12]}"
        with (target.parent / f"{_PREFIX}{target.name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise HubProblem(
                    "in_use", f"Another process is downloading {target}: wait until it has finished."
                ) from None
            for other in target.parent.glob(f"{_PREFIX}{target.name}-*"):
                if other != hidden and other.is_dir():
                    shutil.rmtree(other)
            hidden.mkdir(exist_ok=True)
            yield hidden
            Path(lock.name).unlink(missing_ok=True)
    except PermissionError as problem:
        raise HubProblem(
            "cannot_write", f"No permission to write to {target.parent}: {problem.strerror}."
        ) from None


@dataclass(frozen=True)
class Fetched:
    """A downloaded model. `revision` is its commit."""

    repository: str
    revision: str
    folder: Path
    bytes: int


def default_home() -> Path:
    """BLOOM_HOME, the folder of all downloads."""
    return Path(os.environ.get("BLOOM_HOME") or Path.home() / ".gpubloom").expanduser()


def fetch_model(
    repository: str,
    target: Path,
    *,
    revision: str | None = None,
    token: str | None = None,
    progress: Progress | None = None,
) -> Fetched:
    """Downloads a model into a folder that must not exist yet."""
    return _fetch(RemoteRepository.open(repository, revision=revision, token=token), target, progress)


def local_model(
    name: str,
    home: Path,
    *,
    token: str | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda sentence: None,
) -> Path:
    """The folder of a model: an existing folder, or a hub's model (`ORG/NAME`, `ORG/NAME@REVISION`).

    Downloaded models lie in home/hub/models/ORG--NAME/REVISION. `say` gets a sentence when the hub cannot be
    reached and an earlier download is used.
    """
    folder = Path(name).expanduser()
    if folder.exists():
        return folder
    repository, _, revision = name.partition("@")
    # A folder beside it says that a path was meant, although it could be read as a hub id.
    if name.startswith((".", "/", "~")) or (folder.parent not in {Path(), folder} and folder.parent.is_dir()):
        raise HubProblem("not_found", f"The model folder {name} does not exist.")
    if not HUB_ID.fullmatch(repository):
        raise HubProblem(
            "not_found",
            f"{name} is neither an existing folder nor a hub id. An example of a hub id is Qwen/Qwen3-0.6B.",
        )
    model_folder = home / "hub" / "models" / repository.replace("/", "--")
    try:
        remote = RemoteRepository.open(repository, revision=revision or None, token=token)
    except HubProblem as problem:
        earlier = _earlier_download(model_folder, revision)
        if problem.code == "no_network" and earlier is None:
            raise HubProblem(problem.code, f"There is no folder {name} here, and {problem}") from problem
        if problem.code not in {"no_network", "not_installed"} or earlier is None:
            raise
        say(f"{problem} Using the earlier download {earlier.name[:12]} instead.")
        return earlier
    target = model_folder / remote.commit
    if not target.is_dir():
        _fetch(remote, target, progress)
    return target


def model_files(repository: RemoteRepository) -> list[RemoteFile]:
    """The files to download of a repository; HubProblem when it has no weights in safetensors."""
    at_top = [file for file in repository.files if "/" not in file.path and not file.path.startswith(".")]
    weights = [file for file in at_top if _WEIGHTS.fullmatch(file.path)]
    if not weights:
        others = [file.path for file in at_top if file.path.endswith(_PICKLES)]
        more = f" ({others[0]} can run code, so it is not downloaded)" if others else ""
        raise HubProblem(
            "no_safetensors",
            f"{repository.id} has no weights in safetensors format{more}: choose a revision or a copy of the "
            "model that has them.",
        )
    small = [
        file
        for file in at_top
        if file not in weights and (file.path in _TEXTS or file.path.endswith((".json", ".jinja")))
    ]
    # Small files first: most errors of a model show before its weights are downloaded.
    return small + weights


def _fetch(remote: RemoteRepository, target: Path, progress: Progress | None) -> Fetched:
    if target.exists():
        raise HubProblem("folder_exists", f"{target} already exists: choose another folder.")
    files = model_files(remote)
    fetch_files(remote, files, target, progress)
    return Fetched(remote.id, remote.commit, target, sum(file.size for file in files))


def _earlier_download(model_folder: Path, revision: str) -> Path | None:
    """An earlier download: of this commit, or the newest without `revision`."""
    if not model_folder.is_dir():
        return None
    earlier = [
        folder for folder in model_folder.iterdir() if folder.is_dir() and not folder.name.startswith(".")
    ]
    if revision:
        earlier = [folder for folder in earlier if folder.name.startswith(revision)]
    return max(earlier, key=lambda folder: folder.stat().st_mtime, default=None)


def describe(folder: Path) -> dict[str, str]:
    """The hub id and commit of a downloaded model, from its path."""
    return {"repository": folder.parent.name.replace("--", "/", 1), "revision": folder.name}


def fetched_models(home: Path) -> list[Path]:
    """Every downloaded model of this home."""
    model_folder = home / "hub" / "models"
    if not model_folder.is_dir():
        return []
    return sorted(
        folder
        for folder in model_folder.glob("*/*")
        if (folder / "config.json").is_file() and not folder.name.startswith(".")
    )


def find_layout(files: Sequence[RemoteFile], readme: str) -> Layout:
    """All configurations and splits of a repository."""
    data = [file for file in files if file.path.endswith(SUFFIXES) and not _is_about(file.path)]
    described = _described(readme)
    if described:
        layout = {name: _splits(data, entry) for name, entry in described.items()}
        return {name: splits for name, splits in layout.items() if splits}
    return {DEFAULT: splits} if (splits := _by_name(data)) else {}


def choose(
    layout: Layout, repository: str, config: str | None, split: str | None
) -> tuple[str, str, list[RemoteFile]]:
    """The files of one split; HubProblem lists the choices when the choice is not clear."""
    if not layout:
        raise HubProblem(
            "no_data",
            f"{repository} has no data files of a supported format ({' '.join(shown_suffixes())}). If a "
            "script generates the dataset, save it as files first.",
        )
    name = config or (DEFAULT if DEFAULT in layout else next(iter(layout)) if len(layout) == 1 else None)
    if name is None or name not in layout:
        asked = f"has no configuration {config!r}" if config else "has several configurations"
        raise HubProblem("no_data", f"{repository} {asked}: choose one of {', '.join(layout)}.")
    splits = layout[name]
    part = split or ("train" if "train" in splits else next(iter(splits)) if len(splits) == 1 else None)
    if part is None or part not in splits:
        asked = f"has no split {split!r}" if split else "has several splits"
        raise HubProblem("no_data", f"{repository} ({name}) {asked}: choose one of {', '.join(splits)}.")
    return name, part, splits[part]


def _described(readme: str) -> dict[str, dict[str, Any]]:
    """The `configs` of a README's front matter by their names."""
    match = _FRONT_MATTER.match(readme.replace("\r\n", "\n"))
    if match is None:
        return {}
    # Installed with huggingface_hub.
    import yaml  # type: ignore[import-untyped]

    try:
        content = yaml.safe_load(match[1])
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        # Of a date that no calendar has, or of lists in lists without end.
        return {}
    entries = content.get("configs") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        return {}
    return {_word(entry.get("config_name"), DEFAULT): entry for entry in entries if isinstance(entry, dict)}


def _word(value: object, otherwise: str) -> str:
    """A name in a README. Other people's lists may repeat each other and have no end as a text."""
    return otherwise if value is None or isinstance(value, dict | list | set) else str(value)


def _splits(data: Sequence[RemoteFile], entry: dict[str, Any]) -> dict[str, list[RemoteFile]]:
    folder = _word(entry.get("data_dir"), "").strip("/")
    inside = [file for file in data if not folder or file.path.startswith(f"{folder}/")]
    patterns = entry.get("data_files")
    if patterns is None:
        return _by_name(inside)
    if isinstance(patterns, dict):
        patterns = [{"split": split, "path": path} for split, path in patterns.items()]
    if isinstance(patterns, str):
        patterns = [patterns]
    found: dict[str, list[RemoteFile]] = {}
    for pattern in patterns if isinstance(patterns, list) else []:
        split, paths = ("train", pattern) if isinstance(pattern, str) else _split_and_paths(pattern)
        for path in paths if isinstance(paths, list) else [paths]:
            if not isinstance(path, str):
                continue
            held = found.setdefault(split, [])
            wanted = f"{folder}/{path}" if folder else path
            held += [file for file in data if _matches(wanted, file.path) and file not in held]
    return {split: files for split, files in found.items() if files}


def _split_and_paths(pattern: Any) -> tuple[str, Any]:
    if not isinstance(pattern, dict):
        return "train", []
    return _word(pattern.get("split"), "train"), pattern.get("path")


def _by_name(data: Iterable[RemoteFile]) -> dict[str, list[RemoteFile]]:
    """By the words in their paths; if no path has such a word, all files are the training split."""
    found: dict[str, list[RemoteFile]] = {}
    rest = []
    for file in sorted(data, key=lambda each: each.path):
        split = _split_of(file.path)
        if split is None:
            rest.append(file)
        else:
            found.setdefault(split, []).append(file)
    return found or ({"train": rest} if rest else {})


def _split_of(path: str) -> str | None:
    # The file's own name counts before the folders it lies in.
    for part in reversed(path.casefold().split("/")):
        words = set(re.split(r"[^a-z]+", part))
        for split, names in _SPLIT_WORDS.items():
            if not words.isdisjoint(names):
                return split
    return None


def _matches(pattern: str, path: str) -> bool:
    """Whether a glob as in `datasets` names a file: ** any depth, * within a folder. A folder means all files
    in it.

    Not by a regular expression: strangers write both, and with some stars one takes hours for a name.
    """
    # How far the path may be read after each part of the pattern.
    ends = {0}
    for part in re.split(r"(\*\*|\*|\?)", pattern.removeprefix("./").strip("/")):
        match part:
            case "**":
                ends = set(range(min(ends), len(path) + 1)) if ends else ends
            case "*":
                ends = _within_folder(ends, path)
            case "?":
                ends = {end + 1 for end in ends if path[end : end + 1] not in {"", "/"}}
            case _:
                ends = {end + len(part) for end in ends if path.startswith(part, end)}
    return any(path[end : end + 1] in {"", "/"} for end in ends)


def _within_folder(ends: set[int], path: str) -> set[int]:
    found, reached = set(), False
    for end in range(len(path) + 1):
        if reached := reached or end in ends:
            found.add(end)
        reached = reached and path[end : end + 1] != "/"
    return found


def _is_about(path: str) -> bool:
    """Whether a file describes the dataset instead of holding rows."""
    name = path.rpartition("/")[2].casefold()
    described = {
        "dataset_infos.json",
        "dataset_info.json",
        "state.json",
        "requirements.txt",
        "license.txt",
        "config.json",
    }
    return path.startswith(".") or name in described


@dataclass(frozen=True)
class FetchedDataset:
    """One file with all rows of a split. `notes` tell which files were joined and which rows are left out."""

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
    before_joining: Callable[[], None] = lambda: None,
) -> FetchedDataset:
    """Downloads a split into the folder `target`, which must not exist yet and then holds one file.

    `before_joining` is called when all files have arrived and none was opened yet.
    """
    if target.exists():
        raise HubProblem("folder_exists", f"{target} already exists: choose another folder.")
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
        # A README names the split.
        stem = f"{repository.rpartition('/')[2]}-{_NOT_IN_NAMES.sub('-', part)[:100]}"
        before_joining()
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
    """Joins all parts to one file; parts of different formats become JSON lines."""
    kinds = {part.suffix for part in parts}
    if len(parts) == 1:
        target = stem.with_name(stem.name + parts[0].suffix)
        parts[0].rename(target)
        return target, ()
    must_have_room(stem.parent, sum(part.stat().st_size for part in parts), repository, HubProblem)
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
    """Whether the bytes can be appended to another file: no byte order mark, no other encoding."""
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
    """Writes rows of any format as JSON lines; returns a note about unreadable rows."""
    lost, first = 0, ""
    for row in Source.open(part).rows():
        if row.values is None:
            lost += 1
            first = first or f"row {row.number}: {row.problem}"
            continue
        out.write(json.dumps(row.values, ensure_ascii=False, default=str).encode() + b"\n")
    return [f"{lost:,} unreadable rows of {part.name} are left out; the first is {first}."] if lost else []

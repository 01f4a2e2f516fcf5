"""Which files of a dataset repository a configuration and a split mean: by its README, else by names."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from gpubloom.datasets import SUFFIXES
from gpubloom.hub.problems import HubProblem
from gpubloom.hub.repositories import RemoteFile

DEFAULT = "default"
# The words by which files are told apart, the longest first.
_SPLIT_WORDS = {
    "train": ("training", "train"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("testing", "test", "evaluation", "eval"),
}
_FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)\n---\s*(\n|\Z)", re.DOTALL)
# By configuration, then by split.
Layout = dict[str, dict[str, list[RemoteFile]]]


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
    """The files of one split; HubProblem lists what there is when the choice is not clear."""
    if not layout:
        raise HubProblem(
            "no_data",
            f"{repository} has no files that are read here ({' '.join(SUFFIXES)}): a dataset that a "
            "script makes has to be saved as files first.",
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
    # A part of huggingface_hub's own installation.
    import yaml  # type: ignore[import-untyped]

    try:
        content = yaml.safe_load(match[1])
    except yaml.YAMLError:
        return {}
    entries = content.get("configs") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        return {}
    return {str(entry.get("config_name", DEFAULT)): entry for entry in entries if isinstance(entry, dict)}


def _splits(data: Sequence[RemoteFile], entry: dict[str, Any]) -> dict[str, list[RemoteFile]]:
    folder = str(entry.get("data_dir") or "").strip("/")
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
        for path in [paths] if isinstance(paths, str) else paths:
            wanted = _pattern(f"{folder}/{path}" if folder else str(path))
            held = found.setdefault(split, [])
            held += [file for file in data if wanted.fullmatch(file.path) and file not in held]
    return {split: files for split, files in found.items() if files}


def _split_and_paths(pattern: Any) -> tuple[str, Any]:
    if not isinstance(pattern, dict):
        return "train", []
    return str(pattern.get("split", "train")), pattern.get("path") or []


def _by_name(data: Iterable[RemoteFile]) -> dict[str, list[RemoteFile]]:
    """By the words in their paths; files without such a word are the training split when nothing else is."""
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


def _pattern(path: str) -> re.Pattern[str]:
    """A glob as datasets writes it: ** any depth, * within a folder. A folder means all that is in it."""
    written = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*|\*|\?)", path.removeprefix("./").strip("/"))
    return re.compile("".join(written.get(part, re.escape(part)) for part in parts) + "(/.*)?")


def _is_about(path: str) -> bool:
    """Files that describe the dataset and are none of its rows."""
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

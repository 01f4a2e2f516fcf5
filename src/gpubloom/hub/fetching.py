"""Models by their id on a hub: safetensors, configuration and tokenizer; never pickles, never code."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpubloom.hub.folders import Progress, fetch_files
from gpubloom.hub.problems import HubProblem
from gpubloom.hub.repositories import RemoteFile, RemoteRepository

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_WEIGHTS = re.compile(r"(model|adapter_model)(-\d+-of-\d+)?\.safetensors")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_TEXTS = {"merges.txt", "vocab.txt", "tokenizer.model", "README.md", "LICENSE", "LICENSE.txt", "NOTICE"}


@dataclass(frozen=True)
class Fetched:
    """A model that is here now. `revision` is the commit it came from."""

    repository: str
    revision: str
    folder: Path
    bytes: int


def default_home() -> Path:
    """BLOOM_HOME, where what is fetched is kept."""
    return Path(os.environ.get("BLOOM_HOME") or Path.home() / ".gpubloom").expanduser()


def fetch_model(
    repository: str,
    target: Path,
    *,
    revision: str | None = None,
    token: str | None = None,
    progress: Progress | None = None,
) -> Fetched:
    """Fetches a model into a folder that must not exist yet; HubProblem says what stands in the way."""
    return _fetch(RemoteRepository.open(repository, revision=revision, token=token), target, progress)


def local_model(
    name: str,
    home: Path,
    *,
    token: str | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda sentence: None,
) -> Path:
    """The folder that a person means: an existing one, or a hub's model (`ORG/NAME`, `ORG/NAME@REVISION`).

    Fetched models lie in home/hub/models/ORG--NAME/REVISION. `say` hears when the hub could not be asked and
    what was fetched before is taken.
    """
    folder = Path(name).expanduser()
    if folder.exists():
        return folder
    repository, _, revision = name.partition("@")
    if not HUB_ID.fullmatch(repository):
        raise HubProblem(
            "not_found",
            f"There is no folder {name}, and it is no id of a hub either, such as Qwen/Qwen3-0.6B.",
        )
    model_folder = home / "hub" / "models" / repository.replace("/", "--")
    try:
        remote = RemoteRepository.open(repository, revision=revision or None, token=token)
    except HubProblem as problem:
        kept = _kept(model_folder, revision)
        if problem.code not in {"no_network", "not_installed"} or kept is None:
            raise
        say(f"{problem} Taken instead: what was fetched before, {kept.name[:12]}.")
        return kept
    target = model_folder / remote.commit
    if not target.is_dir():
        _fetch(remote, target, progress)
    return target


def model_files(repository: RemoteRepository) -> list[RemoteFile]:
    """What is fetched of a repository; HubProblem when its weights are of a kind that is not read."""
    at_top = [file for file in repository.files if "/" not in file.path and not file.path.startswith(".")]
    weights = [file for file in at_top if _WEIGHTS.fullmatch(file.path)]
    if not weights:
        others = [file.path for file in at_top if file.path.endswith(_PICKLES)]
        more = f" ({others[0]} can run code, so it is not fetched)" if others else ""
        raise HubProblem(
            "no_safetensors",
            f"{repository.id} has no weights in safetensors{more}: choose a revision or a copy that has.",
        )
    small = [
        file
        for file in at_top
        if file not in weights and (file.path in _TEXTS or file.path.endswith((".json", ".jinja")))
    ]
    # Small files first: what is wrong with a model shows before its weights are fetched.
    return small + weights


def _fetch(remote: RemoteRepository, target: Path, progress: Progress | None) -> Fetched:
    if target.exists():
        raise HubProblem("refused", f"{target} exists already: choose another folder.")
    files = model_files(remote)
    fetch_files(remote, files, target, progress)
    return Fetched(remote.id, remote.commit, target, sum(file.size for file in files))


def _kept(model_folder: Path, revision: str) -> Path | None:
    """What was fetched before: that commit, or the newest when none was asked for."""
    if not model_folder.is_dir():
        return None
    kept = [
        folder for folder in model_folder.iterdir() if folder.is_dir() and not folder.name.startswith(".")
    ]
    if revision:
        kept = [folder for folder in kept if folder.name.startswith(revision)]
    return max(kept, key=lambda folder: folder.stat().st_mtime, default=None)


def describe(folder: Path) -> dict[str, str]:
    """Which model a fetched folder is, for lists: its id and commit, from where it lies."""
    return {"repository": folder.parent.name.replace("--", "/", 1), "revision": folder.name}


def fetched_models(home: Path) -> list[Path]:
    """Every model that was fetched for this home."""
    model_folder = home / "hub" / "models"
    if not model_folder.is_dir():
        return []
    return sorted(
        folder
        for folder in model_folder.glob("*/*")
        if (folder / "config.json").is_file() and not folder.name.startswith(".")
    )

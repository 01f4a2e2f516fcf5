"""Pushes a folder to a hub: creates the repository if it is missing and makes one commit with all files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpubloom.hub.problems import HubProblem, hub_sentences, must_be_installed
from gpubloom.hub.repositories import hub_api, hub_endpoint, hub_token


@dataclass(frozen=True)
class Pushed:
    """Where the files are now."""

    repository: str
    url: str
    revision: str


def push_folder(folder: Path, repository: str, *, private: bool = True, token: str | None = None) -> Pushed:
    """Uploads every file of a folder. A repository that exists keeps its visibility and its other files."""
    must_be_installed()
    from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

    disable_progress_bars()
    if not any(path.is_file() for path in folder.rglob("*")):
        raise HubProblem("no_data", f"{folder} is empty: there is nothing to push.")
    endpoint, known = hub_endpoint(), hub_token(token)
    if known is None:
        raise HubProblem(
            "no_access", f"Pushing to {endpoint} requires a token with write access: set HF_TOKEN."
        )
    api: Any = hub_api(known)
    with hub_sentences(repository, endpoint):
        api.create_repo(repository, repo_type="model", private=private, exist_ok=True)
        try:
            commit = api.upload_folder(
                repo_id=repository,
                folder_path=folder,
                commit_message="Upload with GPU Bloom",
                repo_type="model",
            )
        except RuntimeError as problem:
            # The library wraps an error with a large file.
            raise (problem.__cause__ or problem) from None
    return Pushed(repository, f"{endpoint}/{repository}", str(commit.oid))

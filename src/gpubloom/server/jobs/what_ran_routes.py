"""The HTTP route that says what ran: commit, command line, packages, machine, configs, datasets.

For the people of the job's project only; a share link does not reach it. What a script wrote into its events
is checked here: fields of another type are left out, and texts stay texts.
"""

from pathlib import Path
from typing import Any

import anyio.to_thread
from fastapi import APIRouter
from pydantic import Field, JsonValue

from gpubloom.server.accounts.principal import CurrentSettings
from gpubloom.server.accounts.shares import HOLDS_RUN
from gpubloom.server.jobs.files import run_directory
from gpubloom.server.jobs.stream_routes import OwnJobId
from gpubloom.server.schema import Schema
from gpubloom.traincard.number_encoding import finite_or_none, plain
from gpubloom.traincard.what_ran import load_what_ran

router = APIRouter(tags=["jobs"])

_MOST_CHARACTERS = 256 * 1024
_MOST_ENTRIES = 2_000


class GitState(Schema):
    """The checkout that the script ran in."""

    commit: str
    branch: str | None = None
    remote: str | None = None
    changed: bool = Field(False, description="Whether files differed from the commit.")
    untracked: list[str] = Field([], description="Files that git does not know; names only.")
    diff: str | None = Field(None, description="Changes since the commit; cut if long.")
    diff_characters_left_out: int = 0


class DatasetUsed(Schema):
    """A dataset that the run used."""

    name: str
    fingerprint: str | None = None
    rows: int | None = None
    path: str | None = None
    source: str | None = None
    split: str | None = None


class WhatRan(Schema):
    """What a run recorded about itself at its start. Parts that nobody recorded are empty."""

    command: list[str] = Field([], description="The command line, without secrets.")
    folder: str | None = Field(None, description="The working directory.")
    git: GitState | None = None
    machine: dict[str, JsonValue] = Field({}, description="Host, system, Python, CPU, memory.")
    packages: dict[str, str] = Field({}, description="Installed packages and their versions.")
    configs: dict[str, JsonValue] = Field({}, description="Configs by name, such as TrainingArguments.")
    datasets: list[DatasetUsed] = Field([])


@router.get("/jobs/{job_id}/what-ran", dependencies=[HOLDS_RUN])
async def read_what_ran(job_id: OwnJobId, settings: CurrentSettings) -> WhatRan:
    """Return what ran: commit and changes, command line, packages, machine, configs and datasets."""
    return await anyio.to_thread.run_sync(lambda: what_ran_of(run_directory(settings, job_id)))


def what_ran_of(run_dir: Path) -> WhatRan:
    """What a run directory says about what ran."""
    try:
        # No NaN and no half of a character pair: neither can be sent as JSON.
        return _checked(plain(load_what_ran(run_dir), number=finite_or_none, text=_sendable))
    except (OSError, ValueError, RecursionError):
        # A file that no Reporter writes. pydantic's errors are ValueErrors: it counts the depth, and how much
        # of the stack it has depends on the caller.
        return WhatRan()


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _checked(found: dict[str, Any]) -> WhatRan:
    git, machine = _mapping(found.get("git")), _mapping(found.get("machine"))
    commit = _text(git.get("commit"))
    return WhatRan(
        command=_texts(found.get("command")),
        folder=_text(found.get("folder")),
        git=None
        if commit is None
        else GitState(
            commit=commit,
            branch=_text(git.get("branch")),
            remote=_text(git.get("remote")),
            changed=git.get("changed") is True,
            untracked=_texts(git.get("untracked")),
            diff=_text(git.get("diff")),
            diff_characters_left_out=_count(git.get("diff_characters_left_out")) or 0,
        ),
        machine={name: value for name, value in machine.items() if isinstance(value, (str, int, float))},
        packages={name: str(value) for name, value in _mapping(found.get("packages")).items()},
        configs=_mapping(found.get("configs")),
        datasets=[_dataset(entry) for entry in found.get("datasets") or [] if isinstance(entry, dict)],
    )


def _dataset(entry: dict[str, Any]) -> DatasetUsed:
    texts = {name: _text(entry.get(name)) for name in ("fingerprint", "path", "source", "split")}
    return DatasetUsed(name=str(entry.get("name"))[:200], rows=_count(entry.get("rows")), **texts)


def _mapping(value: object) -> dict[str, Any]:
    return dict(list(value.items())[:_MOST_ENTRIES]) if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value[:_MOST_CHARACTERS] if isinstance(value, str) else None


def _texts(value: object) -> list[str]:
    return (
        [one[:_MOST_CHARACTERS] for one in value if isinstance(one, str)] if isinstance(value, list) else []
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else None

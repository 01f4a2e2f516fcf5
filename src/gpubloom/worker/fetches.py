"""Fetches models and datasets from a hub, in child processes, with the token of whoever asked for them."""

from contextlib import aclosing
from typing import Any

from gpubloom.server.accounts.hub_tokens import open_hub_token
from gpubloom.server.datasets.files import dataset_folder
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.db.database import Database
from gpubloom.server.models.checks import CheckFailed, check_folder
from gpubloom.server.models.files import own_folder
from gpubloom.server.models.tables import Model
from gpubloom.server.settings import Settings
from gpubloom.server.storage import children
from gpubloom.server.storage.room import room_left

_MODULE = "gpubloom.server.storage.fetch_process"
# A large model over a slow line takes a day; more is a line that hangs.
_SECONDS = 2 * 24 * 3600.0


async def fetch_dataset(
    database: Database, settings: Settings, dataset: Dataset, seen: dict[str, Any]
) -> dict[str, Any]:
    """What becomes of the row: a file that is then inspected, or the reason why there is none."""
    origin = dataset.origin
    request = {
        "kind": "dataset",
        "target": str(dataset_folder(settings, dataset.id)),
        **{name: origin.get(name) for name in ("repository", "config", "split", "revision")},
    }
    said = await _fetch(database, settings, dataset, request, seen)
    if "fetched" not in said:
        return _failed(said)
    found = said["fetched"]
    return {
        "status": "inspecting",
        "filename": found["filename"],
        "size": found["size"],
        "received": found["size"],
        "origin": origin | {name: found[name] for name in ("config", "split", "revision", "notes")},
        "progress": None,
        "problem": None,
        "attempt": 0,
    }


async def fetch_model(
    database: Database, settings: Settings, model: Model, seen: dict[str, Any]
) -> dict[str, Any]:
    """What becomes of the row: a folder that was checked, or the reason why there is none."""
    folder = own_folder(settings, model.id)
    request = {
        "kind": "model",
        "target": str(folder),
        "repository": model.repository,
        "revision": model.revision,
    }
    said = await _fetch(database, settings, model, request, seen)
    if "fetched" not in said:
        return _failed(said)
    try:
        check = await check_folder(folder)
    except CheckFailed as failure:
        return _failed({"refused": str(failure)})
    found = said["fetched"]
    return {
        "status": "ready",
        "revision": found["revision"],
        "size": found["size"],
        "received": found["size"],
        "check": check,
        "progress": None,
        "problem": None,
    }


async def _fetch(
    database: Database,
    settings: Settings,
    row: Dataset | Model,
    request: dict[str, Any],
    seen: dict[str, Any],
) -> dict[str, Any]:
    async with database.read() as session:
        token = await open_hub_token(session, settings, row.user_id)
        # What this row itself was counted with before is not in its own way.
        room = await room_left(session, settings, row.user_id) + row.size
    request |= {"token": token, "most_bytes": room}
    last: dict[str, Any] = {}
    try:
        async with aclosing(children.answers(_MODULE, request, seconds=_SECONDS)) as answers:
            async for said in answers:
                if "received" in said:
                    seen["received"], seen["size"] = said["received"], said["size"]
                    seen["progress"] = said["received"] / max(1, said["size"])
                last = said
    except children.ChildFailed as failure:
        return {"refused": f"Fetching did not come to an end. {failure}"}
    return last


def _failed(said: dict[str, Any]) -> dict[str, Any]:
    return {
        "status": "failed",
        "problem": str(said.get("refused", "Fetching gave no answer.")),
        "progress": None,
        "size": 0,
        "received": 0,
    }

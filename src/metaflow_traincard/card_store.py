"""Writes pages and data of a card straight into Metaflow's card datastore.

Metaflow's own way starts a process for every update, which imports the flow again and costs about half a
second of CPU; this costs about a millisecond. It leans on names that Metaflow does not promise to keep, all
of them in this file: whoever uses it is ready to fall back.
"""

import json
from io import BytesIO
from time import time
from types import SimpleNamespace
from typing import Any

CARD_TYPE = "train"
CARD_ID = "traincard"

# The page and its data carry the same token as long as the page need not be loaded again.
LIVE_TOKEN = "never"  # noqa: S105 - Metaflow's word, no secret


class CardStore:
    """The card of one task, and those of its earlier attempts."""

    def __init__(self, flow_datastore: Any, pathspec: str, uuid: str) -> None:
        from metaflow.plugins.cards.card_datastore import CardDatastore

        storage = flow_datastore._storage_impl
        root = CardDatastore.get_storage_root(storage.TYPE)
        # A storage of its own: cards lie under another root than the flow's artifacts.
        of_cards = SimpleNamespace(_storage_impl=type(storage)(root), flow_name=flow_datastore.flow_name)
        self._store = CardDatastore(of_cards, pathspec=pathspec)
        self._uuid = uuid

    def save_data(self, content: dict[str, Any], uuid: str | None = None) -> None:
        """What an open page takes in without loading again."""
        payload = {"reload_token": LIVE_TOKEN, "data": content, "created_on": time()}
        location = self._store.get_card_location(
            self._store._get_data_write_path(),
            CARD_TYPE,
            uuid or self._uuid,
            card_id=CARD_ID,
            suffix="data.json",
        )
        text = json.dumps(payload, allow_nan=False, separators=(",", ":"))
        self._store._backend.save_bytes([(location, BytesIO(text.encode()))], overwrite=True)

    def save_page(self, html: str, uuid: str | None = None) -> None:
        """The page that is loaded when somebody opens the card."""
        self._store.save_card(uuid or self._uuid, CARD_TYPE, html, card_id=CARD_ID, overwrite=True)

    def earlier(self) -> list[str]:
        """The cards of the task's earlier attempts; Metaflow makes a new one for every retry."""
        found = self._store.extract_data_paths(card_type=CARD_TYPE, card_id=CARD_ID)
        names = [self._store.info_from_path(path, suffix="data.json") for path in found]
        return [
            info.hash
            for info in names
            if info.type == CARD_TYPE and info.id == CARD_ID and info.hash != self._uuid
        ]


def register_card(metadata: Any, run_id: str, step_name: str, task_id: str, attempt: int, card: Any) -> None:
    """Tells the metadata service that there is a card, as Metaflow does when it renders one."""
    from metaflow.plugins.cards.metadata import _save_metadata

    wanted, info = card._metadata_state_manager.register_metadata(card._card_uuid)
    if wanted:
        _save_metadata(metadata, run_id, step_name, task_id, attempt, card._card_uuid, info)

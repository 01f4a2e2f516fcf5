"""Where a dataset is stored. The server chooses every file name; nothing comes from a request."""

import shutil
import unicodedata
from pathlib import Path
from uuid import UUID

from gpubloom.datasets import readable_suffixes
from gpubloom.datasets.source import shown_suffixes
from gpubloom.errors import InputError
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.settings import Settings
from gpubloom.server.storage.uploads import Arriving

_LONGEST_NAME = 200


def datasets_folder(settings: Settings) -> Path:
    """The folder of all datasets; outside of what a data path may name."""
    return settings.home / "datasets"


def dataset_folder(settings: Settings, dataset_id: UUID) -> Path:
    return datasets_folder(settings) / str(dataset_id)


def dataset_file(settings: Settings, dataset: Dataset) -> Path:
    """The file of examples, once it is here."""
    return dataset_folder(settings, dataset.id) / f"data{suffix_of(dataset.filename)}"


def problems_file(settings: Settings, dataset_id: UUID) -> Path:
    """One problem a line, as the last inspection found them."""
    return dataset_folder(settings, dataset_id) / "problems.jsonl"


def arriving_file(settings: Settings, dataset: Dataset) -> Arriving:
    return Arriving(dataset_file(settings, dataset), dataset.size)


def suffix_of(filename: str) -> str:
    """The suffix that decides how the file is read. Raises if the suffix is not supported."""
    for suffix in readable_suffixes():
        if filename.lower().endswith(suffix):
            return suffix
    raise InputError(
        "wrong_suffix",
        f"{shown_name(filename)} has an unsupported file type. Supported: {' '.join(shown_suffixes())}.",
    )


def shown_name(filename: str) -> str:
    """A file's name to be shown: without its folders and without characters that cannot be seen."""
    last = filename.replace("\\", "/").rpartition("/")[2]
    seen = "".join(
        character
        for character in last
        if unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    ).strip()
    if len(seen) > _LONGEST_NAME:
        # The ending is what says how the file is read.
        seen = seen[: _LONGEST_NAME - 20] + "…" + seen[-19:]
    return seen


def remove_dataset(settings: Settings, dataset_id: UUID) -> None:
    """Remove a dataset's files; what cannot be removed is left for the operator."""
    shutil.rmtree(dataset_folder(settings, dataset_id), ignore_errors=True)

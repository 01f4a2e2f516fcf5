"""Where a dataset is stored. The server chooses every file name; nothing comes from a request."""

import shutil
import unicodedata
from pathlib import Path
from uuid import UUID

from gpubloom.datasets import readable_suffixes
from gpubloom.datasets.documents.archive import UPLOAD_SUFFIXES
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


def upload_file(settings: Settings, dataset: Dataset) -> Path:
    """Where the bytes of an upload go: documents lie beside the rows that are made of them."""
    if dataset.documents is None:
        return dataset_file(settings, dataset)
    suffix = document_suffix(dataset.documents["filename"])
    return dataset_folder(settings, dataset.id) / f"documents{suffix}"


def documents_file(settings: Settings, dataset_id: UUID) -> Path:
    """One uploaded document a line, as the last parsing found them (`DocumentOut`)."""
    return dataset_folder(settings, dataset_id) / "documents.jsonl"


def rejected_file(settings: Settings, dataset_id: UUID) -> Path:
    """One answer of a model a line that is not used, with the reason."""
    return dataset_folder(settings, dataset_id) / "rejected.jsonl"


def text_file(settings: Settings, dataset: Dataset) -> Path:
    """The passages of documents as plain text, for models that are trained from scratch."""
    return dataset_folder(settings, dataset.id) / "text.txt"


def problems_file(settings: Settings, dataset_id: UUID) -> Path:
    """One problem a line, as the last inspection found them."""
    return dataset_folder(settings, dataset_id) / "problems.jsonl"


def arriving_file(settings: Settings, dataset: Dataset) -> Arriving:
    return Arriving(upload_file(settings, dataset), dataset.size)


def suffix_of(filename: str) -> str:
    """The suffix that decides how the file is read. Raises if the suffix is not supported."""
    for suffix in readable_suffixes():
        if filename.lower().endswith(suffix):
            return suffix
    raise InputError(
        "wrong_suffix",
        f"{shown_name(filename)} has an unsupported file type. Supported: {' '.join(shown_suffixes())}.",
    )


def document_suffix(filename: str) -> str:
    """The suffix of a document or of an archive of documents. Raises if it is not supported."""
    for suffix in UPLOAD_SUFFIXES:
        if filename.lower().endswith(suffix):
            return suffix
    raise InputError(
        "wrong_suffix",
        f"{shown_name(filename)} is not a supported document. Supported: {' '.join(UPLOAD_SUFFIXES)}.",
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

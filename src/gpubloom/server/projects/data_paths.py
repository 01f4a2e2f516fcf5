"""Which training data a project may name.

A remote address and a dataset by its id are only references here. A local path must lie in the uploads folder
or in a root that the operator allowed (BLOOM_DATA_ROOTS): otherwise anybody with an account could have this
machine's files read to them by a training job. The roots come from the environment, not from the web app, so
that a stolen admin session cannot widen them.
"""

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import UUID

from gpubloom.datasets.remote_data import is_remote
from gpubloom.errors import InputError
from gpubloom.server.settings import Settings

REMOTE_SCHEMES = frozenset({"s3", "gs", "az", "hf", "https"})
# Before the id of an uploaded dataset. Whose it is, is asked when a job uses it.
DATASET = "dataset://"


class DataPathRefused(InputError):
    """A path that a project may not use; says why."""


def check_data_path(path: str, settings: Settings) -> str:
    """The path as it is stored; raises when it may not be used."""
    _check_parts(path)
    if path.startswith(DATASET):
        return f"{DATASET}{_dataset_id(path)}"
    if "://" in path:
        return _check_remote(path)
    candidate = Path(path).expanduser() if path.startswith("/") else settings.uploads / path
    check_data_files([candidate], settings)
    return path


def check_address(path: str) -> str:
    """An address that a job can fetch data from; raises for any other path."""
    if not is_remote(path):
        raise DataPathRefused(
            "path_not_local",
            "A job fetches data from https://, hf://, s3:// and gs:// addresses only. Upload the file first.",
        )
    _check_parts(path)
    return _check_remote(path)


def check_data_files(files: Iterable[Path], settings: Settings) -> None:
    """Raises when one of these paths leads, through links, outside the folders that users may read."""
    uploads, home = settings.uploads.resolve(), settings.home.resolve()
    roots = [uploads, *(root.resolve() for root in settings.data_roots)]
    for file in files:
        try:
            # Symbolic links are followed: what counts is where the data lies in the end.
            resolved = file.resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise DataPathRefused("unreadable_file", "The server cannot read this path.") from error
        # The home folder holds emails, runs and the database; an allowed root around it does not open it.
        private = resolved.is_relative_to(home) and not resolved.is_relative_to(uploads)
        if private or not any(resolved.is_relative_to(root) for root in roots):
            raise DataPathRefused(
                "path_not_allowed",
                "The server may not read this path. Use a path in the uploads folder or a remote "
                "address such as s3://bucket/folder/, or ask the operator to add the folder to "
                "BLOOM_DATA_ROOTS.",
            )


def dataset_of(path: str | None) -> UUID | None:
    """The dataset that a stored path stands for, if it is one."""
    return None if path is None or not path.startswith(DATASET) else _dataset_id(path)


def _dataset_id(path: str) -> UUID:
    try:
        return UUID(path.removeprefix(DATASET))
    except ValueError as error:
        raise DataPathRefused(
            "invalid_address", "The address of a dataset is dataset:// and its id, a UUID."
        ) from error


def _check_parts(path: str) -> None:
    if ".." in _decoded(path).replace("\\", "/").split("/"):
        raise DataPathRefused("path_outside_folder", "A data path must not contain '..'.")


def _decoded(path: str) -> str:
    # `%2e%2e/` is never honest, however often it was encoded and whatever would decode it later.
    while (plainer := unquote(path)) != path:
        path = plainer
    return path


def _check_remote(path: str) -> str:
    try:
        parts = urlsplit(path)
    except ValueError as error:
        raise DataPathRefused("invalid_address", "This address is not valid.") from error
    if parts.scheme not in REMOTE_SCHEMES:
        allowed = ", ".join(f"{scheme}://" for scheme in sorted({*REMOTE_SCHEMES, "dataset"}))
        raise DataPathRefused(
            "scheme_not_allowed", f"This type of address is not supported. Use {allowed}, or a path."
        )
    if not parts.netloc:
        raise DataPathRefused("invalid_address", "The address has no bucket or host.")
    if parts.username or parts.password:
        raise DataPathRefused(
            "password_in_address",
            "Remove the user name and password from the address: the address is stored as plain text.",
        )
    return path

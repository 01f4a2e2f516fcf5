"""Asks a child process what is wrong with a model."""

from pathlib import Path
from typing import Any

from gpubloom.server.storage import children

_MODULE = "gpubloom.server.models.check_process"
# It reads small files and headers; what takes longer is a template that does not want to end.
_SECONDS = 30


class CheckFailed(Exception):
    """The check itself did not come to an end; says why."""


async def check_folder(folder: Path) -> dict[str, Any]:
    """The report of a model's folder."""
    try:
        return await children.answer(
            _MODULE, {"folder": str(folder), "cpu_seconds": _SECONDS}, seconds=_SECONDS
        )
    except children.ChildFailed as error:
        raise CheckFailed(f"The check did not come to an end. {error}") from error

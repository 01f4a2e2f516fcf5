"""Deleting a folder that somebody still writes to."""

import shutil
from pathlib import Path


def delete_in_use(folder: Path) -> None:
    """The folder is gone in one step, as for somebody who deletes it while no file is added."""
    moved = folder.rename(folder.with_name(f".{folder.name}.deleted"))
    # What a process wrote there meanwhile is not worth a second look.
    shutil.rmtree(moved, ignore_errors=True)

"""`adapter_config.json` as it is downloaded: it names the base model by its id on the hub or by its name.

In the run directory it names a folder of the server, which is nobody else's business. PEFT finds a base by a
hub id; with a name, people give the base themselves: `PeftModel.from_pretrained(base, folder)`.
"""

import io
import json
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypeGuard
from uuid import UUID

import anyio.to_thread
from sqlalchemy import select

from gpubloom.server.db.database import Database
from gpubloom.server.jobs.files import FoundFile
from gpubloom.server.models.tables import Model
from gpubloom.traincard.untrusted_json import UntrustedJsonError, parse_untrusted

_FILE = "adapter_config.json"
_BASE = "base_model_name_or_path"
_MOST_BYTES = 1 << 20
# The folder of a model that `gpubloom.hub` downloaded.
_HUB_FOLDER = re.compile(r".*/hub/models/([^/]+?)--([^/]+)/[0-9a-f]{40}/?")


@dataclass(frozen=True)
class _Rewritten(FoundFile):
    content: bytes = b""

    def open(self) -> io.BufferedReader:
        return io.BufferedReader(io.BytesIO(self.content))


async def with_named_base(database: Database, user_id: UUID, files: list[FoundFile]) -> list[FoundFile]:
    """The files of a person's model; `adapter_config.json` no longer names a folder of the server."""
    return [
        await _rewritten(database, user_id, file)
        if file.name.rpartition("/")[2] == _FILE and file.size <= _MOST_BYTES
        else file
        for file in files
    ]


async def _rewritten(database: Database, user_id: UUID, file: FoundFile) -> FoundFile:
    settings = await anyio.to_thread.run_sync(_read, file)
    if settings is None or not _is_folder(base := settings.get(_BASE)):
        return file
    name = await _public_name(database, user_id, PurePosixPath(base))
    content = (json.dumps({**settings, _BASE: name}, indent=2) + "\n").encode()
    return _Rewritten(file.run_dir, file.folder, file.name, len(content), file.modified_ns, content)


def _read(file: FoundFile) -> dict[str, Any] | None:
    try:
        with file.open() as stream:
            found = parse_untrusted(stream.read(_MOST_BYTES + 1), most_bytes=_MOST_BYTES)
    except (OSError, UntrustedJsonError):
        return None
    return found if isinstance(found, dict) else None


def _is_folder(base: object) -> TypeGuard[str]:
    return isinstance(base, str) and (base.startswith(("/", "~")) or _model_id(base) is not None)


def _model_id(name: str) -> UUID | None:
    try:
        return UUID(name)
    except ValueError:
        return None


async def _public_name(database: Database, user_id: UUID, base: PurePosixPath) -> str:
    if match := _HUB_FOLDER.fullmatch(str(base)):
        return f"{match[1]}/{match[2]}"
    if model_id := _model_id(base.name):
        # The job can write any id into this file: only models of the same person are looked up.
        async with database.read() as session:
            statement = select(Model).where(Model.id == model_id, Model.user_id == user_id)
            if (model := await session.scalar(statement)) is not None:
                return model.repository or model.name
        return "unknown"
    return base.name

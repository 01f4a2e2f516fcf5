"""Parse the documents of an upload: one question per document to a confined child process.

A document that ends the child, or takes too long, is a problem of that document: the next child goes on with
the one after it. Rows are written to a hidden file that gets its name at the end, so that a worker that is
killed leaves the dataset as it was. A document may have taken the child over: its answers are checked, and
what it wrote is not read here.
"""

import asyncio
import json
import time
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpubloom.datasets.documents.archive import MOST_FILES
from gpubloom.server.datasets.files import dataset_file, documents_file, text_file, upload_file
from gpubloom.server.datasets.parse_process import CPU_SECONDS
from gpubloom.server.datasets.service import failed
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.db.database import Database
from gpubloom.server.settings import Settings
from gpubloom.server.storage.children import ChildFailed, ChildTookTooLong, KeptChild
from gpubloom.server.storage.service import room_left
from gpubloom.traincard.atomic_write import replace_file

_MODULE = "gpubloom.server.datasets.parse_process"
# Longer than the limit of CPU time: on a busy machine a document waits for the CPU.
_SECONDS = 3 * CPU_SECONDS
_LONGEST_ANSWER = 64 << 10
# Of all documents: thousands of small ones, made to be slow, would hold up everybody else's for days.
_LEAST_SECONDS = 1_800.0
_SLOWEST_BYTES_PER_SECOND = 50_000
_PUBLISH_SECONDS = 1_800.0

_Count = Annotated[int, Field(ge=0, lt=1 << 53)]


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Listed(_Answer):
    documents: Annotated[int, Field(ge=0, le=MOST_FILES)]


class _Named(_Answer):
    file: Annotated[str, Field(max_length=1_000)]
    size: _Count


class _Parsed(_Named):
    pages: _Count | None = None
    passages: _Count = 0
    characters: _Count = 0
    notes: Annotated[list[Annotated[str, Field(max_length=1_000)]], Field(max_length=10)] = []
    code: Annotated[str, Field(max_length=100)] | None = None
    problem: Annotated[str, Field(max_length=1_000)] | None = None
    # Where its rows end in the file.
    bytes: _Count


Checked = TypeVar("Checked", bound=_Answer)


async def parse_documents(
    database: Database, settings: Settings, dataset: Dataset, seen: dict[str, Any]
) -> dict[str, Any]:
    """Parse an upload. Returns the new columns of its row: a file of passages to inspect, or the problem."""
    assert dataset.documents is not None
    path = upload_file(settings, dataset)
    if not path.is_file():
        return failed("The documents are no longer on the server's disk. Upload them again.")
    rows, text = path.with_name(".rows.partial"), path.with_name(".text.partial")
    async with database.read() as session:
        # What an earlier cut of the same documents takes is not in its way.
        room = await room_left(session, settings, dataset.user_id) + dataset.size
    parsing = _Parsing(
        {
            "sandbox": settings.sandbox_mode,
            "path": str(path),
            "filename": dataset.documents["filename"],
            "characters": dataset.documents["passage_characters"],
            "rows": str(rows),
            "text": str(text),
            "most_bytes": room - dataset.documents["size"],
        },
        _LEAST_SECONDS + dataset.documents["size"] / _SLOWEST_BYTES_PER_SECOND,
    )
    try:
        found = await parsing.run(seen)
    except ChildFailed as failure:
        found = f"The documents could not be read. {failure}"
    finally:
        await parsing.end()
    if isinstance(found, str):
        await asyncio.to_thread(_remove, rows, text)
        return failed(found)
    summary = {
        **{name: dataset.documents[name] for name in ("filename", "size", "passage_characters")},
        "files": len(found),
        "problems": sum(one["problem"] is not None for one in found),
        **{name: sum(one[name] or 0 for one in found) for name in ("pages", "passages", "characters")},
    }
    await asyncio.to_thread(_keep, documents_file(settings, dataset.id), found)
    if not summary["passages"]:
        await asyncio.to_thread(_remove, rows, text)
        return failed(_nothing_found(found)) | {"documents": summary}
    await asyncio.to_thread(text.replace, text_file(settings, dataset))
    data = dataset_file(settings, dataset)
    await asyncio.to_thread(rows.replace, data)
    # An index of the rows before would point into other rows.
    data.with_name(f"{data.name}.rows").unlink(missing_ok=True)
    whole = await asyncio.to_thread(_folder_bytes, path.parent)
    return {
        "status": "inspecting",
        "documents": summary,
        "size": whole,
        "received": whole,
        "progress": None,
        "problem": None,
        "attempt": 0,
    }


class _Parsing:
    def __init__(self, setup: dict[str, Any], seconds: float) -> None:
        self._setup = setup
        self._seconds = seconds
        self._child: KeptChild | None = None
        # Of the rows that count; what is behind them came from a document that failed.
        self.bytes = 0

    async def run(self, seen: dict[str, Any]) -> list[dict[str, Any]] | str:
        """What came of each document; a sentence when the upload itself cannot be read."""
        said = await self._ask({"list": True}, _SECONDS)
        if "refused" in said:
            return str(said["refused"])
        count = _checked(_Listed, said).documents
        ends = time.monotonic() + self._seconds
        found: list[dict[str, Any]] = []
        for index in range(count):
            one = await self._parse(index, ends - time.monotonic())
            self.bytes = one.bytes
            found.append(one.model_dump(exclude={"bytes"}))
            seen["progress"] = (index + 1) / count
        if self.bytes:
            await self._ask({"publish": self.bytes}, _PUBLISH_SECONDS)
        return found

    async def _parse(self, index: int, seconds_left: float) -> _Parsed:
        try:
            if seconds_left > 0:
                said = await self._ask({"parse": index, "bytes": self.bytes}, min(_SECONDS, seconds_left))
                return _checked(_Parsed, said)
            code, sentence = "document_too_slow", "was not read: the whole upload takes too long. Split it."
        except ChildTookTooLong:
            code, sentence = "document_too_slow", "takes too long to read. Split it."
        except ChildFailed:
            code, sentence = (
                "document_broken",
                "made the process that reads it fail. Save it again and retry.",
            )
        if seconds_left > 0:
            await self.end()
        named = _checked(_Named, await self._ask({"name": index}, _SECONDS))
        return _Parsed(**named.model_dump(), code=code, problem=sentence, bytes=self.bytes)

    async def _ask(self, question: dict[str, Any], seconds: float) -> dict[str, Any]:
        if self._child is None:
            self._child = await KeptChild.start(_MODULE, self._setup, longest_answer=_LONGEST_ANSWER)
        return await self._child.ask(question, seconds=seconds)

    async def end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.end()


def _checked(kind: type[Checked], said: dict[str, Any]) -> Checked:
    try:
        return kind.model_validate(said)
    except ValidationError:
        raise ChildFailed("The process sent an unreadable answer.") from None


def _remove(*partial: Path) -> None:
    for path in partial:
        path.unlink(missing_ok=True)


def _folder_bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.iterdir())


def _nothing_found(found: list[dict[str, Any]]) -> str:
    reasons = [f"{one['file']} {one['problem']}" for one in found if one["problem"]]
    more = f" {len(reasons) - 3:,} more documents have problems." if len(reasons) > 3 else ""
    return f"No document has text that could be used. {' '.join(reasons[:3])}{more}"


def _keep(path: Path, found: list[dict[str, Any]]) -> None:
    """Documents with a problem first: they are what a person can mend."""
    ordered = sorted(found, key=lambda one: one["problem"] is None)
    replace_file(path, "".join(json.dumps(one) + "\n" for one in ordered))

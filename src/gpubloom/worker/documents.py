"""Parse the documents of an upload: one question per document to a confined child process.

A document that ends the child, or takes too long, is a problem of that document: the next child goes on with
the one after it. Rows are written to a hidden file that gets its name at the end, so that a worker that is
killed leaves the dataset as it was.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from gpubloom.server.datasets.files import dataset_file, documents_file, text_file, upload_file
from gpubloom.server.datasets.parse_process import CPU_SECONDS
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.db.database import Database
from gpubloom.server.settings import Settings
from gpubloom.server.storage.children import ChildFailed, ChildTookTooLong, KeptChild

_MODULE = "gpubloom.server.datasets.parse_process"
# On a busy machine a document takes longer than its own time.
_SECONDS = 3 * CPU_SECONDS
_LONGEST_ANSWER = 1 << 20


async def parse_documents(
    _: Database, settings: Settings, dataset: Dataset, seen: dict[str, Any]
) -> dict[str, Any]:
    """What becomes of the row: a file of passages that is then inspected, or the reason why there is none."""
    assert dataset.documents is not None
    path = upload_file(settings, dataset)
    if not path.is_file():
        return _failed("The documents are no longer on the server's disk. Upload them again.")
    rows = path.with_name(".rows.partial")
    parsing = _Parsing(
        {
            "sandbox": settings.sandbox_mode,
            "path": str(path),
            "filename": dataset.documents["filename"],
            "characters": dataset.documents["passage_characters"],
            "rows": str(rows),
        }
    )
    try:
        found = await parsing.run(seen)
    except ChildFailed as failure:
        return _failed(f"The documents could not be read. {failure}")
    finally:
        await parsing.end()
    if isinstance(found, str):
        return _failed(found)
    summary = {
        **{name: dataset.documents[name] for name in ("filename", "size", "passage_characters")},
        "files": len(found),
        "problems": sum(one["problem"] is not None for one in found),
        **{name: sum(one[name] or 0 for one in found) for name in ("pages", "passages", "characters")},
    }
    await asyncio.to_thread(_keep, documents_file(settings, dataset.id), found)
    if not summary["passages"]:
        return _failed(_nothing_found(found)) | {"documents": summary}
    size = await asyncio.to_thread(
        _publish, rows, parsing.bytes, dataset_file(settings, dataset), text_file(settings, dataset)
    )
    whole = dataset.documents["size"] + size
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
    def __init__(self, setup: dict[str, Any]) -> None:
        self._setup = setup
        self._child: KeptChild | None = None
        # Of the rows that count; what is behind them came from a document that failed.
        self.bytes = 0

    async def run(self, seen: dict[str, Any]) -> list[dict[str, Any]] | str:
        """What came of each document; a sentence when the upload itself cannot be read."""
        said = await self._ask({"list": True})
        if "refused" in said:
            return str(said["refused"])
        found: list[dict[str, Any]] = []
        for index in range(said["documents"]):
            one = await self._parse(index)
            self.bytes = one.pop("bytes")
            found.append(one)
            seen["progress"] = (index + 1) / said["documents"]
        return found

    async def _parse(self, index: int) -> dict[str, Any]:
        try:
            return await self._ask({"parse": index, "bytes": self.bytes})
        except ChildTookTooLong:
            code, sentence = "document_too_slow", "takes too long to read. Split it."
        except ChildFailed:
            code, sentence = (
                "document_broken",
                "made the process that reads it fail. Save it again and retry.",
            )
        await self.end()
        named = await self._ask({"name": index})
        return named | {
            "pages": None,
            "passages": 0,
            "characters": 0,
            "notes": [],
            "code": code,
            "problem": sentence,
            "bytes": self.bytes,
        }

    async def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        if self._child is None:
            self._child = await KeptChild.start(_MODULE, self._setup, longest_answer=_LONGEST_ANSWER)
        return await self._child.ask(question, seconds=_SECONDS)

    async def end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.end()


def _failed(sentence: str) -> dict[str, Any]:
    return {"status": "failed", "problem": sentence[:2_000], "progress": None, "report": None}


def _nothing_found(found: list[dict[str, Any]]) -> str:
    reasons = [f"{one['file']} {one['problem']}" for one in found if one["problem"]]
    more = f" {len(reasons) - 3:,} more documents have problems." if len(reasons) > 3 else ""
    return f"No document has text that could be used. {' '.join(reasons[:3])}{more}"


def _keep(path: Path, found: list[dict[str, Any]]) -> None:
    """Documents with a problem first: they are what a person can mend."""
    ordered = sorted(found, key=lambda one: one["problem"] is None)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text("".join(json.dumps(one) + "\n" for one in ordered), encoding="utf-8")
    partial.replace(path)


def _publish(rows: Path, size: int, data: Path, text: Path) -> int:
    """The rows under their name, and the same as plain text; returns how many bytes both take."""
    os.truncate(rows, size)
    partial = text.with_name(f".{text.name}.partial")
    with rows.open(encoding="utf-8") as lines, partial.open("w", encoding="utf-8") as out:
        for line in lines:
            out.write(json.loads(line)["text"] + "\n\n")
    partial.replace(text)
    rows.replace(data)
    # An index of the rows before would point into other rows.
    data.with_name(f"{data.name}.rows").unlink(missing_ok=True)
    return data.stat().st_size + text.stat().st_size

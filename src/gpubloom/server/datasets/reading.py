"""Asks a child process about a dataset: a page of it, all its problems, the same as messages."""

import json
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path
from typing import Any

from gpubloom.server.datasets.files import dataset_file
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.problems import InvalidInput
from gpubloom.server.settings import Settings
from gpubloom.server.storage import children

MODULE = "gpubloom.server.datasets.read_process"
_PREVIEW_SECONDS = 30
_CONVERT_CPU_SECONDS = 24 * 3600
_LONGEST_LINE = 1 << 20


def _request(settings: Settings, dataset: Dataset, action: str, **fields: Any) -> dict[str, Any]:
    return {
        "action": action,
        "sandbox": settings.sandbox_mode,
        "path": str(dataset_file(settings, dataset)),
        "filename": dataset.filename,
        "format": dataset.format,
        "columns": dataset.columns,
        "encoding": dataset.encoding,
        "mapping": dataset.report["mapping"] if dataset.report else None,
        **fields,
    }


def inspection_request(
    settings: Settings, dataset: Dataset, problems: Path, seconds: float
) -> dict[str, Any]:
    """What a worker asks for when a file has arrived."""
    return _request(settings, dataset, "inspect", problems=str(problems), cpu_seconds=int(seconds))


async def read_page(
    settings: Settings,
    dataset: Dataset,
    *,
    offset: int,
    limit: int,
    model: Path | None,
    context_length: int | None,
) -> dict[str, Any]:
    """A page of rows; a file or a model that cannot be read is the asker's to mend."""
    request = _request(
        settings,
        dataset,
        "preview",
        offset=offset,
        limit=limit,
        model=None if model is None else str(model),
        context_length=context_length,
        has_sources=dataset.source in {"documents", "questions"},
        cpu_seconds=_PREVIEW_SECONDS,
    )
    try:
        said = await children.answer(MODULE, request, seconds=_PREVIEW_SECONDS)
    except children.ChildTookTooLong as error:
        raise InvalidInput(
            f"Reading this page took longer than {_PREVIEW_SECONDS} seconds and was stopped. Request "
            "fewer rows, or wait until the inspection of the file is done.",
            code="preview_took_too_long",
        ) from error
    except children.TemplateTookTooLong as error:
        raise InvalidInput(str(error), code="template_took_too_long") from error
    except children.ChildFailed as error:
        raise InvalidInput(f"The server could not read this page. {error}", code="preview_failed") from error
    if "refused" in said:
        raise InvalidInput(str(said["refused"]), code=str(said["code"]))
    found: dict[str, Any] = said["page"]
    return found


def converted(settings: Settings, dataset: Dataset) -> AsyncIterator[bytes]:
    """All examples as messages, one JSON object a line."""
    request = _request(settings, dataset, "convert", cpu_seconds=_CONVERT_CPU_SECONDS)
    return children.output(MODULE, request)


def read_problems(path: Path, *, offset: int, limit: int) -> tuple[list[dict[str, Any]], int]:
    """Some of the kept problems, and how many are kept."""
    try:
        with path.open("rb") as file:
            # The process that wrote it read a stranger's file: a line is what fits, whatever it wrote.
            lines = iter(lambda: file.readline(_LONGEST_LINE), b"")
            before = sum(1 for _ in islice(lines, offset))
            shown = [json.loads(line) for line in islice(lines, limit)]
            return shown, before + len(shown) + sum(1 for _ in lines)
    except FileNotFoundError:
        return [], 0

"""Inspects a dataset that has arrived, in a child process; the report goes into its row."""

from contextlib import aclosing
from typing import Any

from gpubloom.server.datasets.files import dataset_file, problems_file
from gpubloom.server.datasets.reading import MODULE, inspection_request
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.db.database import Database
from gpubloom.server.settings import Settings
from gpubloom.server.storage import children

# A slow disk and a busy machine read this much in a second.
_SLOWEST_BYTES_PER_SECOND = 2_000_000
_LEAST_SECONDS = 300.0


async def inspect_dataset(
    database: Database, settings: Settings, dataset: Dataset, seen: dict[str, Any]
) -> dict[str, Any]:
    """What becomes of the row; `seen` tells how far it is."""
    if not dataset_file(settings, dataset).is_file():
        return _failed("The file is gone from this server's disk. Upload it again.")
    seconds = _LEAST_SECONDS + dataset.size / _SLOWEST_BYTES_PER_SECOND
    request = inspection_request(settings, dataset, problems_file(settings, dataset.id), seconds)
    last: dict[str, Any] = {}
    try:
        async with aclosing(children.answers(MODULE, request, seconds=seconds)) as answers:
            async for said in answers:
                if "progress" in said:
                    seen["progress"] = said["progress"]
                last = said
    except children.ChildFailed as failure:
        return _failed(f"The inspection did not come to an end. {failure}")
    if "report" not in last:
        return _failed(str(last.get("refused", "The inspection gave no report.")))
    return {"status": "ready", "report": last["report"], "problem": None, "progress": None}


def _failed(sentence: str) -> dict[str, Any]:
    return {"status": "failed", "problem": sentence, "progress": None, "report": None}

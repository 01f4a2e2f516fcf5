"""`python -m` this: parses the documents of one upload, one question per document (`KeptChild`).

The first line of the input says where the upload lies and how to cut it. The process then confines itself to
the folder of the dataset, with bounded memory, before it touches what strangers made. {"list": true} is
answered with the number of documents, {"parse": 3, "bytes": 700} with what came of the fourth: its passages
are in the file of rows behind byte 700. {"name": 3} asks for its name; {"publish": 900} ends the rows there
and writes their text. A document that kills this process costs the asker one document.
"""

import json
import os
import signal
import sys
import types
from pathlib import Path
from typing import Any, NoReturn

from gpubloom.datasets.documents.archive import Member, members
from gpubloom.datasets.documents.blocks import Document, DocumentProblem
from gpubloom.datasets.documents.passages import cut
from gpubloom.sandbox.landlock import Limits, confine_reader
from gpubloom.server.datasets.read_process import readable, send_line

# Of one document. A thousand dense pages take half of it on a slow machine.
CPU_SECONDS = 120.0
_MEMORY_BYTES = 2 << 30
_LARGEST_FILE = 8 << 30
# Of all documents of one process; the asker's clock ends each of them much earlier.
_PROCESS_CPU_SECONDS = 24 * 3600
_MOST_NOTES = 10


class _TookTooLong(BaseException):
    """Not an Exception: parsers catch those."""


def _raise_took_too_long(_signal: int, _frame: types.FrameType | None) -> NoReturn:
    raise _TookTooLong


def main() -> None:
    """Answers until the input ends."""
    setup = json.loads(sys.stdin.readline())
    folder = Path(setup["path"]).parent
    confine_reader(
        [folder],
        [folder],
        limits=Limits(_PROCESS_CPU_SECONDS, memory_bytes=_MEMORY_BYTES, file_bytes=_LARGEST_FILE, nice=True),
        policy=setup["sandbox"],
    )
    signal.signal(signal.SIGPROF, _raise_took_too_long)
    try:
        found = members(Path(setup["path"]), setup["filename"])
    except DocumentProblem as problem:
        # The answer to the first question.
        send_line(refused=f"{setup['filename']} {problem}", code=problem.code)
        return
    for line in sys.stdin:
        question = json.loads(line)
        if "parse" in question:
            send_line(**_parse(found[question["parse"]], setup, question["bytes"]))
        elif "publish" in question:
            _publish(setup, question["publish"])
            send_line(published=True)
        elif "name" in question:
            send_line(file=found[question["name"]].name, size=found[question["name"]].size)
        else:
            send_line(documents=len(found))


def _parse(member: Member, setup: dict[str, Any], offset: int) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "file": member.name,
        "size": member.size,
        "pages": None,
        "passages": 0,
        "characters": 0,
        "notes": [],
        "code": None,
        "problem": None,
        "bytes": offset,
    }
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        document = member.parsed()
        return answer | _written(document, member.name, setup, offset)
    except DocumentProblem as caught:
        problem = caught
    except _TookTooLong:
        problem = DocumentProblem(
            "document_too_slow", f"takes more than {CPU_SECONDS:.0f} seconds to read. Split it."
        )
    except MemoryError:
        problem = DocumentProblem("document_too_large", "needs more memory than the server allows. Split it.")
    except RecursionError:
        problem = DocumentProblem("document_broken", "is nested too deeply.")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return answer | {"code": problem.code, "problem": str(problem)[:1_000]}


def _written(document: Document, name: str, setup: dict[str, Any], offset: int) -> dict[str, Any]:
    """Append the passages behind `offset`; rows of a document that ended this process are overwritten."""
    passages = characters = 0
    path = Path(setup["rows"])
    with path.open("r+b" if path.exists() else "w+b") as rows:
        rows.truncate(offset)
        rows.seek(offset)
        for passage in cut(document, name, setup["characters"]):
            row = passage.row()
            row["text"] = readable(row["text"])
            rows.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            passages += 1
            characters += len(passage.text)
            # The text is written once more (`_publish`).
            if 2 * rows.tell() > setup["most_bytes"]:
                raise DocumentProblem(
                    "quota_exceeded", "does not fit into your storage. Delete a dataset, a model or a job."
                )
        end = rows.tell()
    return {
        "pages": document.pages,
        "passages": passages,
        "characters": characters,
        "notes": list(document.notes[:_MOST_NOTES]),
        "bytes": end,
    }


def _publish(setup: dict[str, Any], size: int) -> None:
    """End the rows before what failed documents left behind them, and write their text."""
    rows, text = Path(setup["rows"]), Path(setup["text"])
    os.truncate(rows, size)
    with rows.open(encoding="utf-8") as lines, text.open("w", encoding="utf-8") as out:
        for line in lines:
            out.write(json.loads(line)["text"] + "\n\n")


if __name__ == "__main__":
    main()

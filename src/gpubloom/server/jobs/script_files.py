"""The files of a script job: what its owner brought, and what the script made of it since.

A script writes whatever it likes into its folder, links included. So nothing here follows one, at no step of
a path: what is outside of the folder stays outside, also when a folder is swapped for a link while we look.
"""

import json
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from gpubloom.scripts.task import WORK_FOLDER, checked_path
from gpubloom.server.jobs.files import FoundFile
from gpubloom.traincard.atomic_write import read_json_object, replace_file
from gpubloom.traincard.beneath import open_beneath

MOST_ARTIFACTS = 5_000
_BROUGHT_FILE = "brought.json"
# Made anew by every run, and read by nobody.
_NOT_SHOWN = {"__pycache__", "lost+found"}

# Path to size and time of change, as they were when the job was made.
Brought = Mapping[str, tuple[int, int]]


def write_files(run_dir: Path, files: Mapping[str, bytes]) -> None:
    """Puts the files of a new job where its attempts will run, and writes down what they were."""
    work = run_dir / WORK_FOLDER
    work.mkdir(parents=True)
    written = []
    for name, content in files.items():
        path = work / checked_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        written.append(path)
    note_brought(run_dir, written)


def note_brought(run_dir: Path, paths: Iterable[Path]) -> None:
    """Writes down how files are that no script made."""
    brought = dict(read_brought(run_dir))
    for path in paths:
        facts = path.lstat()
        brought[path.relative_to(run_dir / WORK_FOLDER).as_posix()] = (facts.st_size, facts.st_mtime_ns)
    replace_file(run_dir / _BROUGHT_FILE, json.dumps(brought) + "\n", durable=True)


def read_brought(run_dir: Path) -> Brought:
    """Empty where nothing is written down."""
    try:
        content = read_json_object(run_dir / _BROUGHT_FILE) or {}
    except ValueError:
        return {}
    return {name: (int(facts[0]), int(facts[1])) for name, facts in content.items()}


def was_brought(brought: Brought, run_dir: Path, path: Path) -> bool:
    """Whether a file is still as its owner brought it."""
    name = path.relative_to(run_dir / WORK_FOLDER).as_posix()
    if name not in brought:
        return False
    facts = path.lstat()
    return (facts.st_size, facts.st_mtime_ns) == brought[name]


def artifacts(run_dir: Path) -> list[FoundFile]:
    """What the script wrote or changed, by name; at most so many."""
    work = run_dir / WORK_FOLDER
    brought = read_brought(run_dir)
    found: list[FoundFile] = []
    for directory, folders, names in os.walk(work):
        folders[:] = sorted(name for name in folders if _is_shown(name))
        for path in (Path(directory, name) for name in sorted(names) if _is_shown(name)):
            try:
                facts = path.lstat()
            except OSError:
                continue
            if stat.S_ISREG(facts.st_mode) and not was_brought(brought, run_dir, path):
                name = path.relative_to(work).as_posix()
                found.append(FoundFile(run_dir, WORK_FOLDER, name, facts.st_size))
        if len(found) >= MOST_ARTIFACTS:
            break
    return sorted(found[:MOST_ARTIFACTS], key=lambda file: file.name)


def _is_shown(name: str) -> bool:
    return not name.startswith(".") and name not in _NOT_SHOWN and name.isprintable()


def read_text(run_dir: Path, name: str, most: int) -> str:
    """The beginning of a text file in the work folder. OSError: it is not there, or no plain file."""
    with os.fdopen(open_beneath(run_dir, f"{WORK_FOLDER}/{checked_path(name)}"), "rb") as file:
        return file.read(most).decode("utf-8", "replace").replace("\0", "")

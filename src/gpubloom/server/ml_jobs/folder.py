"""From a request to the files of a folder: decoded, every name checked, and the one to run found."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from gpubloom.errors import code_of
from gpubloom.scripts import Requirements, ScriptProblem, is_notebook
from gpubloom.scripts.task import checked_path
from gpubloom.server.ml_jobs.schemas import FolderFile, NewMlJob
from gpubloom.server.problems import InvalidInput
from gpubloom.server.scripts.reading import ScriptReader

_USUAL_NAMES = ("train.py", "main.py", "run.py")
_READ_ENDINGS = (".py", ".json", ".toml", ".yaml", ".yml")
_MOST_READ = 50
_LONGEST_READ = 128 * 1024


@dataclass(frozen=True)
class Folder:
    """What a person brought. `notes`: what was done to it."""

    files: Mapping[str, bytes]
    entry: str
    notes: tuple[str, ...] = ()


def read_folder(body: NewMlJob) -> Folder:
    """Read the files of a request. Raises InvalidInput with the file and the reason."""
    if (body.code is None) == (not body.files):
        raise InvalidInput.for_field(
            "files", "Send exactly one of code and files.", code="contradictory_fields"
        )
    if body.code is not None:
        files = {_checked("entry", body.entry or "train.py"): body.code.encode()}
    else:
        files = _decoded(body)
    entry = _checked("entry", body.entry) if body.entry else _found_entry(files)
    if entry not in files:
        raise InvalidInput.for_field(
            "entry", f"The entry {entry} is not among the files.", code="entry_not_found"
        )
    return Folder(files, entry)


async def as_script(folder: Folder, reader: ScriptReader) -> Folder:
    """The folder with its notebook as a script, if the file to run is a notebook."""
    files, entry = folder.files, folder.entry
    text = _text(files[entry]) or ""
    is_script = entry.endswith(".py")
    if not entry.endswith(".ipynb") and not is_notebook(text):
        return folder
    name = entry if is_script else f"{entry.rpartition('.')[0] or entry}.py"
    if not is_script and name in files:
        raise InvalidInput.for_field(
            "entry",
            f"{entry} would be converted to {name}, but a file with this name already exists.",
            code="duplicate_file",
        )
    try:
        script = await reader.script_of(text)
    except ScriptProblem as problem:
        raise InvalidInput.for_field(
            "code" if is_script else "entry", str(problem), code=problem.code
        ) from None
    note = (
        "The notebook was converted to a script."
        if is_script
        else f"{entry} was converted to the script {name}."
    )
    return Folder({**files, name: script.encode()}, name, (note,))


async def read_requirements(folder: Folder, arguments: list[str], reader: ScriptReader) -> Requirements:
    """The requirements of the script."""
    text = _text(folder.files[folder.entry])
    if text is None:
        raise InvalidInput.for_field("entry", f"{folder.entry} is not UTF-8 text.", code="not_utf8")
    siblings: dict[str, str] = {}
    for name, content in folder.files.items():
        is_read = name.endswith(_READ_ENDINGS) or name.rpartition("/")[2].startswith("requirements")
        if name == folder.entry or not is_read or len(content) > _LONGEST_READ or len(siblings) == _MOST_READ:
            continue
        if (other := _text(content)) is not None:
            siblings[name] = other
    try:
        return await reader.requirements(text, siblings, arguments)
    except ScriptProblem as problem:
        raise InvalidInput.for_field("entry", str(problem), code=problem.code) from None


def as_folder_file(path: str, content: bytes) -> FolderFile:
    """A file as a request sends it: what is no text, in base64."""
    text = _text(content)
    if text is None or "\0" in text:
        return FolderFile(path=path, base64=base64.b64encode(content).decode())
    return FolderFile(path=path, text=text)


def _decoded(body: NewMlJob) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for number, file in enumerate(body.files):
        field = f"files.{number}"
        path = _checked(f"{field}.path", file.path)
        if path in files:
            raise InvalidInput.for_field(f"{field}.path", f"{path} is listed twice.", code="duplicate_file")
        if (file.text is None) == (file.base64 is None):
            raise InvalidInput.for_field(
                field, f"Send exactly one of text and base64 for {path}.", code="contradictory_fields"
            )
        try:
            files[path] = (
                base64.b64decode(file.base64, validate=True)
                if file.base64 is not None
                else (file.text or "").encode()
            )
        except (binascii.Error, UnicodeEncodeError):
            raise InvalidInput.for_field(
                field, f"The base64 content of {path} cannot be decoded.", code="not_base64"
            ) from None
    for path in files:
        if parent := next((str(each) for each in PurePosixPath(path).parents if str(each) in files), None):
            raise InvalidInput.for_field(
                "files", f"{parent} is used both as a file and as a folder.", code="duplicate_file"
            )
    return files


def _found_entry(files: Mapping[str, bytes]) -> str:
    for name in _USUAL_NAMES:
        if name in files:
            return name
    scripts = [name for name in files if name.endswith((".py", ".ipynb")) and "/" not in name]
    if len(scripts) != 1:
        raise InvalidInput.for_field(
            "entry", "There is no train.py. Set entry to the file to run.", code="entry_missing"
        )
    return scripts[0]


def _checked(field: str, path: str) -> str:
    try:
        return checked_path(path)
    except ValueError as problem:
        raise InvalidInput.for_field(field, str(problem), code=code_of(problem)) from None


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None

"""A notebook for Colab from a script.

The notebook mounts Drive, so that checkpoints outlive the session, installs the packages of the script,
checks for a GPU, and then holds the script cell by cell. It never contains an address or a key.
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from gpubloom.scripts import (
    Cell,
    Detected,
    ScriptCheckpoints,
    ScriptProblem,
    detect,
    from_notebook,
    is_notebook,
    to_notebook,
)

_MOST_BYTES = 4 << 20
_MOUNT = """\
#@title Save all files in Drive { display-mode: "form" }
import os, sys
from google.colab import drive

drive.mount("/content/drive")
FOLDER = "/content/drive/MyDrive/GPU Bloom/" + NAME
os.makedirs(FOLDER, exist_ok=True)
os.chdir(FOLDER)
sys.path.insert(0, FOLDER)
print("The files are in", FOLDER)"""
_GPU = """\
#@title Check for a GPU { display-mode: "form" }
import shutil, subprocess

if shutil.which("nvidia-smi"):
    print(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout)
else:
    print("No GPU found: choose one in Runtime, Change runtime type, and run all cells again.")"""
_BINARY = """\
#@title Files { display-mode: "form" }
import base64, pathlib

FILES = CONTENT
for name, text in FILES.items():
    path = pathlib.Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(text))"""
_ARGUMENTS = """\
#@title The command line { display-mode: "form" }
sys.argv = COMMAND_LINE"""
_RESUME = """
if os.path.isdir(SAVED) and os.listdir(SAVED):
    sys.argv += MORE
    print("Resuming from the saved checkpoint:", *sys.argv)"""
_RESULTS = """\
#@title Download all files { display-mode: "form" }
import shutil
from google.colab import files

files.download(shutil.make_archive("/content/results", "zip", FOLDER))"""


def colab_notebook(
    files: Mapping[str, str | bytes],
    entry: str = "train.py",
    arguments: Sequence[str] = (),
    packages: Sequence[str] | None = None,
    *,
    name: str | None = None,
    gpu: str = "T4",
) -> dict[str, Any]:
    """The notebook as JSON (nbformat 4.5), to be saved as .ipynb. Raises ScriptProblem for invalid input.

    `packages`: None takes the packages that the script imports.
    """
    _check(files, entry)
    script = _text(files[entry], entry)
    script = from_notebook(script) if is_notebook(script) else script
    siblings = {path: text for path, text in files.items() if path != entry and isinstance(text, str)}
    found = detect(script, files=siblings, arguments=arguments)
    if packages is None:
        packages = [package.value for package in found.packages]
    title = name or PurePosixPath(entry).stem
    folder = re.sub(r"[^A-Za-z0-9._ -]+", "-", title).strip(" .-")[:60] or "job"
    before = [
        Cell("markdown", _introduction(title)),
        Cell("code", _MOUNT.replace("NAME", repr(folder), 1)),
        *([Cell("code", f"%pip install --quiet {' '.join(_quoted(packages))}")] if packages else []),
        Cell("code", _GPU),
        *_file_cells({path: content for path, content in files.items() if path != entry}),
        Cell("code", _command_line([entry, *arguments], found.checkpoints)),
    ]
    after = [
        Cell(
            "markdown",
            "All files are in Drive. To share the notebook: **File**, **Save a copy in Drive**, **Share**.",
        ),
        Cell("code", _RESULTS),
    ]
    metadata = {"accelerator": "GPU", "colab": {"name": f"{folder}.ipynb", "gpuType": gpu}}
    notebook: dict[str, Any] = json.loads(to_notebook(script, before=before, after=after, metadata=metadata))
    return notebook


def _check(files: Mapping[str, str | bytes], entry: str) -> None:
    if entry not in files:
        raise ScriptProblem(
            "entry_not_found",
            f"{entry} is missing. The files are: {', '.join(sorted(files)) or 'none'}.",
        )
    for path in files:
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts or "\n" in path or "\\" in path:
            raise ScriptProblem("path_outside_folder", f"{path!r} is not a path inside the job folder.")
    size = sum(len(content) for content in files.values())
    if size > _MOST_BYTES:
        raise ScriptProblem(
            "files_too_large",
            f"The files have {size:,} bytes; the limit of a notebook is {_MOST_BYTES:,}. Put data into the "
            "Drive folder that the notebook names.",
        )


def _text(content: str | bytes, path: str) -> str:
    if isinstance(content, str):
        return content
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise ScriptProblem("not_utf8", f"{path} is not UTF-8 text.") from None


def _introduction(title: str) -> str:
    return (
        f"# {title}\n\n1. **Runtime**, **Change runtime type**: choose a GPU.\n"
        "2. **Runtime**, **Run all**. Drive asks for permission once.\n\n"
        "A session ends after a day at most, and earlier when the page is closed or idle. Saved checkpoints "
        "are in Drive; run all cells again to resume.\n\nMade by GPU Bloom."
    )


def _file_cells(files: Mapping[str, str | bytes]) -> list[Cell]:
    """Python files as cells to read and edit; all other files in one cell, base64-encoded."""
    cells, packed = [], {}
    for path, content in sorted(files.items()):
        plain = isinstance(content, str) and path.endswith(".py") and "/" not in path
        if plain and isinstance(content, str):
            # The magic adds a newline at the end of the file.
            cells.append(Cell("code", f"%%writefile {path}\n{content.removesuffix(chr(10))}"))
        else:
            data = content.encode() if isinstance(content, str) else content
            packed[path] = base64.b64encode(data).decode()
    if packed:
        cells.append(Cell("code", _BINARY.replace("CONTENT", json.dumps(packed, indent=1), 1)))
    return cells


def _command_line(words: Sequence[str], found: Detected[ScriptCheckpoints] | None) -> str:
    code = _ARGUMENTS.replace("COMMAND_LINE", repr(words), 1)
    more = found.value.resume_arguments if found is not None else ()
    if found is None or found.value.folder is None or not more or any("=PATH" in word for word in more):
        return code
    return code + _RESUME.replace("SAVED", repr(found.value.folder)).replace("MORE", repr(list(more)))


def _quoted(packages: Sequence[str]) -> list[str]:
    for package in packages:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._\[\],<>=!~ -]*", package):
            raise ScriptProblem("invalid_package", f"{package!r} is not a valid package name for pip.")
    return [f'"{package}"' if re.search(r"[<>=!~\[ ]", package) else package for package in packages]

"""A notebook for Colab made from a script: somebody opens it there, and it does the rest.

It mounts Drive, so that what was learned outlives the session, installs what the script needs, looks for a
GPU, and then holds the script cell by cell. No address and no key is ever written into it.
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
#@title Keep everything in Drive { display-mode: "form" }
import os, sys
from google.colab import drive

drive.mount("/content/drive")
FOLDER = "/content/drive/MyDrive/GPU Bloom/" + NAME
os.makedirs(FOLDER, exist_ok=True)
os.chdir(FOLDER)
sys.path.insert(0, FOLDER)
print("Files lie in", FOLDER)"""
_GPU = """\
#@title Is there a GPU? { display-mode: "form" }
import shutil, subprocess

if shutil.which("nvidia-smi"):
    print(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout)
else:
    print("There is no GPU: choose one under Runtime, Change runtime type, and run all cells again.")"""
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
    print("Going on from what was saved:", *sys.argv)"""
_AGENT = """\
#@title Let GPU Bloom watch { display-mode: "form" }
import getpass, os, subprocess

try:
    from google.colab import userdata
    start = userdata.get("BLOOM_START")
except Exception:
    # No such secret, or this notebook may not read it.
    start = getpass.getpass("The start of the job (empty: run it here, unwatched): ")

class Watched(Exception):
    def _render_traceback_(self):
        return ["The job has run, and GPU Bloom has its results. The cells below would run it again."]

if start:
    agent = subprocess.Popen(
        ["/bin/sh", "-c", COMMAND], env={**os.environ, "BLOOM_START": start.strip()},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    for line in agent.stdout:
        print(line, end="", flush=True)
    if agent.wait() != 0:
        raise RuntimeError("The agent of the job ended with code %d." % agent.returncode)
    raise Watched"""
_RESULTS = """\
#@title Download everything { display-mode: "form" }
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
    command: str | None = None,
) -> dict[str, Any]:
    """The notebook as JSON (nbformat 4.5), to be saved as .ipynb. ScriptProblem: it cannot be made of these.

    `packages`: None takes what the script seems to need. `command` starts a job's agent
    (`SentBundle.command`): then the notebook asks for the address of the job, in Colab's secrets or at a
    prompt, and what happens is watched as anywhere else.
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
        *([Cell("code", _AGENT.replace("COMMAND", repr(command), 1))] if command is not None else []),
        Cell("code", _command_line([entry, *arguments], found.checkpoints)),
    ]
    after = [
        Cell(
            "markdown", "Everything lies in Drive. To share: **File**, **Save a copy in Drive**, **Share**."
        ),
        Cell("code", _RESULTS),
    ]
    metadata = {"accelerator": "GPU", "colab": {"name": f"{folder}.ipynb", "gpuType": gpu}}
    notebook: dict[str, Any] = json.loads(to_notebook(script, before=before, after=after, metadata=metadata))
    return notebook


def _check(files: Mapping[str, str | bytes], entry: str) -> None:
    if entry not in files:
        raise ScriptProblem(
            "entry_not_found", f"There is no {entry} among the files: {', '.join(sorted(files)) or 'none'}."
        )
    for path in files:
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts or "\n" in path or "\\" in path:
            raise ScriptProblem("path_outside_folder", f"{path!r} is no path inside the job's folder.")
    size = sum(len(content) for content in files.values())
    if size > _MOST_BYTES:
        raise ScriptProblem(
            "files_too_large",
            f"The files have {size:,} bytes; up to {_MOST_BYTES:,} go into a notebook. Put data into Drive, "
            "into the folder that the notebook names.",
        )


def _text(content: str | bytes, path: str) -> str:
    if isinstance(content, str):
        return content
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise ScriptProblem("not_utf8", f"{path} is no text.") from None


def _introduction(title: str) -> str:
    return (
        f"# {title}\n\n1. **Runtime**, **Change runtime type**: choose a GPU.\n"
        "2. **Runtime**, **Run all**. Drive asks for permission once.\n\n"
        "Sessions end: after a day at most, sooner without a look at them. What was saved lies in Drive; run "
        "all cells again to go on from there.\n\nMade by GPU Bloom."
    )


def _file_cells(files: Mapping[str, str | bytes]) -> list[Cell]:
    """Code as cells that can be read and changed; everything else in one cell, packed."""
    cells, packed = [], {}
    for path, content in sorted(files.items()):
        plain = isinstance(content, str) and path.endswith(".py") and "/" not in path
        if plain and isinstance(content, str):
            # The magic ends a file with a line end of its own.
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
            raise ScriptProblem("invalid_package", f"{package!r} is no package that pip installs by name.")
    return [f'"{package}"' if re.search(r"[<>=!~\[ ]", package) else package for package in packages]

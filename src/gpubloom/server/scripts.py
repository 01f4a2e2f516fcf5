"""The HTTP routes of user scripts: their requirements, and conversion from and to notebooks.

Nothing is run and nothing is kept. Reading a script takes some CPU time: in a thread, two at a time.
"""

import json
from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

import anyio
import anyio.to_thread
from fastapi import APIRouter, Request
from pydantic import Field

from gpubloom.providers.colab.notebook import colab_notebook
from gpubloom.scripts import Requirements, ScriptProblem, detect, from_notebook, to_notebook
from gpubloom.server.problems import InvalidInput
from gpubloom.server.schema import Schema, Storable

# A notebook with its outputs is longer than its script; the body as a whole is limited as well.
_MOST_CHARACTERS = 1_000_000
SourceText = Annotated[str, Field(max_length=_MOST_CHARACTERS), Storable]
Word = Annotated[str, Field(max_length=1_000), Storable]
FileName = Annotated[str, Field(min_length=1, max_length=300), Storable]


class ScriptIn(Schema):
    """A script or a notebook, the files next to it by name, and its command line."""

    script: SourceText
    files: dict[FileName, SourceText] = Field({}, max_length=50)
    arguments: list[Word] = Field([], max_length=100)


class ColabNotebookIn(ScriptIn):
    """A script for Colab. If `packages` is null, the packages are derived from the script."""

    entry: FileName = "train.py"
    packages: list[Word] | None = Field(None, max_length=100)
    name: Annotated[str, Field(min_length=1, max_length=100), Storable] | None = None
    gpu: Literal["T4", "L4", "A100", "H100"] = "T4"


class ScriptText(Schema):
    """A script."""

    script: SourceText


class NotebookText(Schema):
    """A notebook file: its JSON as a string."""

    notebook: SourceText


router = APIRouter(tags=["scripts"])

MOST_AT_ONCE = 2
Result = TypeVar("Result")


@router.post("/requirements")
async def find_requirements(request: Request, body: ScriptIn) -> Requirements:
    """Inspect a script or notebook without running it. Every finding has its line and its confidence."""
    return await _read(
        request, "script", lambda: detect(body.script, files=body.files, arguments=body.arguments)
    )


@router.post("/scripts/to-notebook")
async def make_notebook(request: Request, body: ScriptText) -> NotebookText:
    """Convert a script to a notebook, with a cell per group of statements."""
    return NotebookText(notebook=await _read(request, "script", lambda: to_notebook(body.script)))


@router.post("/scripts/from-notebook")
async def make_script(request: Request, body: NotebookText) -> ScriptText:
    """Convert a notebook to a script. Lines that are not Python become comments."""
    return ScriptText(script=await _read(request, "notebook", lambda: from_notebook(body.notebook)))


@router.post("/scripts/colab-notebook")
async def make_colab_notebook(request: Request, body: ColabNotebookIn) -> NotebookText:
    """Create a Colab notebook that mounts Drive, installs packages, checks for a GPU, runs the script and
    saves its results.
    """
    files = {**body.files, body.entry: body.script}

    def make() -> str:
        made = colab_notebook(files, body.entry, body.arguments, body.packages, name=body.name, gpu=body.gpu)
        return json.dumps(made, indent=1, ensure_ascii=False) + "\n"

    return NotebookText(notebook=await _read(request, "script", make))


async def _read(request: Request, field: str, read: Callable[[], Result]) -> Result:
    try:
        return await anyio.to_thread.run_sync(read, limiter=request.app.state.script_readers)
    except ScriptProblem as problem:
        raise InvalidInput.for_field(field, str(problem), code=problem.code) from None

"""The addresses of scripts. Reading one takes a moment of computing: in a thread, and two at a time."""

import json
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread
from fastapi import APIRouter, Request

from gpubloom.providers.colab.notebook import colab_notebook
from gpubloom.scripts import ScriptProblem, detect, from_notebook, to_notebook
from gpubloom.server.problems import InvalidInput
from gpubloom.server.scripts.schemas import (
    ColabNotebookIn,
    NotebookText,
    RequirementsOut,
    ScriptIn,
    ScriptText,
)

router = APIRouter(tags=["scripts"])

MOST_AT_ONCE = 2
Result = TypeVar("Result")


@router.post("/requirements")
async def find_requirements(request: Request, body: ScriptIn) -> RequirementsOut:
    """What a script or notebook needs, from its text alone: every value with its line and how sure it is."""
    found = await _read(
        request, "script", lambda: detect(body.script, files=body.files, arguments=body.arguments)
    )
    return RequirementsOut.model_validate(found)


@router.post("/scripts/to-notebook")
async def make_notebook(request: Request, body: ScriptText) -> NotebookText:
    """A notebook of a script, cut into cells between its statements."""
    return NotebookText(notebook=await _read(request, "script", lambda: to_notebook(body.script)))


@router.post("/scripts/from-notebook")
async def make_script(request: Request, body: NotebookText) -> ScriptText:
    """The script of a notebook; what is no Python in it becomes comments."""
    return ScriptText(script=await _read(request, "notebook", lambda: from_notebook(body.notebook)))


@router.post("/scripts/colab-notebook")
async def make_colab_notebook(request: Request, body: ColabNotebookIn) -> NotebookText:
    """A notebook that runs a script in Colab: Drive, packages, a look for a GPU, the script, its results."""
    files = {**body.files, body.entry: body.script}

    def make() -> str:
        made = colab_notebook(files, body.entry, body.arguments, body.packages, name=body.name, gpu=body.gpu)
        return json.dumps(made, indent=1, ensure_ascii=False) + "\n"

    return NotebookText(notebook=await _read(request, "script", make))


async def _read(request: Request, field: str, read: Callable[[], Result]) -> Result:
    try:
        return await anyio.to_thread.run_sync(read, limiter=request.app.state.script_readers)
    except ScriptProblem as problem:
        raise InvalidInput.for_field(field, str(problem)) from None

"""The HTTP routes of user scripts: their requirements, and conversion from and to notebooks.

Nothing is run and nothing is kept. A confined process reads the text.
"""

from collections.abc import Awaitable
from typing import Annotated, Literal, TypeVar

from fastapi import APIRouter
from pydantic import Field

from gpubloom.scripts import Requirements, ScriptProblem
from gpubloom.server.problems import InvalidInput
from gpubloom.server.schema import Schema, Storable
from gpubloom.server.scripts.read_process import MOST_CHARACTERS
from gpubloom.server.scripts.reading import CurrentScriptReader

# A notebook with its outputs is longer than its script; the body as a whole is limited as well.
SourceText = Annotated[str, Field(max_length=MOST_CHARACTERS), Storable]
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

Result = TypeVar("Result")


@router.post("/requirements")
async def find_requirements(reader: CurrentScriptReader, body: ScriptIn) -> Requirements:
    """Inspect a script or notebook without running it. Every finding has its line and its confidence."""
    return await _about("script", reader.requirements(body.script, body.files, body.arguments))


@router.post("/scripts/to-notebook")
async def make_notebook(reader: CurrentScriptReader, body: ScriptText) -> NotebookText:
    """Convert a script to a notebook, with a cell per group of statements."""
    return NotebookText(notebook=await _about("script", reader.notebook_of(body.script)))


@router.post("/scripts/from-notebook")
async def make_script(reader: CurrentScriptReader, body: NotebookText) -> ScriptText:
    """Convert a notebook to a script. Lines that are not Python become comments."""
    return ScriptText(script=await _about("notebook", reader.script_of(body.notebook)))


@router.post("/scripts/colab-notebook")
async def make_colab_notebook(reader: CurrentScriptReader, body: ColabNotebookIn) -> NotebookText:
    """Create a Colab notebook that mounts Drive, installs packages, checks for a GPU, runs the script and
    saves its results.
    """
    made = reader.colab_notebook(
        files={**body.files, body.entry: body.script},
        **body.model_dump(include={"entry", "arguments", "packages", "name", "gpu"}),
    )
    return NotebookText(notebook=await _about("script", made))


async def _about(field: str, reading: Awaitable[Result]) -> Result:
    try:
        return await reading
    except ScriptProblem as problem:
        raise InvalidInput.for_field(field, str(problem), code=problem.code) from None

"""The JSON of models and of the catalogue."""

import re
from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from gpubloom.hub.architecture import Severity
from gpubloom.plan.config import Method
from gpubloom.server.models.tables import Source, Status
from gpubloom.server.schema import Line, Schema, Whole
from gpubloom.server.storage.uploads import LARGEST_OFFSET

Name = Annotated[Line, Field(min_length=1, max_length=200)]
RepositoryName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}$")]
Revision = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[\w][\w./+-]*$")]
# Names of files that a model is made of. No folders, no links, nothing that is run.
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,150}\.(json|jinja|txt|model|safetensors)")
# The largest models have some hundred files.
_MOST_FILES = 1_000


class ModelFile(Schema):
    """A file of a model that will be uploaded."""

    path: Annotated[str, Field(min_length=1, max_length=300)]
    size: Annotated[Whole, Field(ge=1, le=LARGEST_OFFSET)]


class NewModel(Schema):
    """A model on the Hugging Face Hub, in a folder on the server, or as files to upload."""

    source: Source
    name: Name | None = None
    repository: RepositoryName | None = None
    revision: Revision | None = None
    path: Annotated[Line, Field(min_length=1, max_length=1024)] | None = None
    files: Annotated[list[ModelFile], Field(max_length=_MOST_FILES)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _says_where_it_is(self) -> "NewModel":
        if self.source == "hub" and self.repository is None:
            raise PydanticCustomError(
                "repository_missing",
                "Set 'repository' to the id of the model on the Hugging Face Hub, such as Qwen/Qwen3-0.6B.",
            )
        if self.source == "folder" and self.path is None:
            raise PydanticCustomError("path_missing", "Set 'path' to the folder of the model.")
        if self.source == "upload":
            _check_files([file.path for file in self.files])
        return self


def _check_files(names: list[str]) -> None:
    for name in names:
        if not FILE_NAME.fullmatch(name):
            raise PydanticCustomError(
                "wrong_suffix",
                f"{name[:100]!r} is not a supported model file. Upload .safetensors, .json, .jinja, "
                ".txt and .model files, without folders.",
            )
    if len({name.lower() for name in names}) < len(names):
        raise PydanticCustomError("duplicate_file", "Two files have the same name.")
    if "config.json" not in names:
        raise PydanticCustomError(
            "not_a_model_folder", "The file config.json is missing. Upload it together with the weights."
        )
    if not any(name.endswith(".safetensors") for name in names):
        raise PydanticCustomError("no_safetensors", "The weights are missing. Upload the .safetensors files.")


class FindingOut(Schema):
    """`error`: the model cannot be trained. `warning`: a limitation. `note`: how the model is read."""

    code: str
    severity: Severity
    sentence: str


class CheckOut(Schema):
    """The report about a model folder and its problems."""

    ok: bool
    findings: list[FindingOut]
    family: str | None
    parameters: int | None
    context_length: int | None
    vocab_size: int | None
    chat_template: bool
    bytes: int
    memory: Annotated[dict[Method, int] | None, Field(description="Minimum GPU memory in bytes, by method.")]


class ModelOut(Schema):
    id: UUID
    name: str
    source: Source
    repository: str | None
    revision: str | None
    path: str | None
    status: Status
    progress: float | None
    size: int
    received: int
    files: list[ModelFile]
    check: CheckOut | None
    problem: str | None
    created_at: datetime


class Models(Schema):
    items: list[ModelOut]
    total: int


class CatalogueModelOut(Schema):
    id: str
    parameters: int
    licence: str
    context_length: int
    chat: bool
    gated: bool | None
    unsloth_id: str | None
    memory: dict[Method, int]


class FamilyOut(Schema):
    name: str
    models: list[CatalogueModelOut]


class CatalogueOut(Schema):
    """Common base models. `setting` says which settings the memory figures apply to."""

    setting: str
    families: list[FamilyOut]

"""The JSON of models and of the catalogue."""

import re
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from gpubloom.server.models.tables import Source, Status
from gpubloom.server.schema import Line, Schema, Whole
from gpubloom.server.storage.uploads import LARGEST_OFFSET

Method = Literal["full", "lora", "qlora"]
Name = Annotated[Line, Field(min_length=1, max_length=200)]
RepositoryName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}$")]
Revision = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[\w][\w./+-]*$")]
# Names of files that a model is made of. No folders, no links, nothing that is run.
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,150}\.(json|jinja|txt|model|safetensors)")
# The largest models have some hundred files.
_MOST_FILES = 1_000


class ModelFile(Schema):
    """A file of a model's folder that will be uploaded."""

    path: Annotated[str, Field(min_length=1, max_length=300)]
    size: Annotated[Whole, Field(ge=1, le=LARGEST_OFFSET)]


class NewModel(Schema):
    """A model by its id on a hub, by a folder of this machine, or by the files that will be uploaded."""

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
                "A model of a hub needs its id in 'repository', such as Qwen/Qwen3-0.6B.",
            )
        if self.source == "folder" and self.path is None:
            raise PydanticCustomError("path_missing", "A model in a folder needs the folder in 'path'.")
        if self.source == "upload":
            _check_files([file.path for file in self.files])
        return self


def _check_files(names: list[str]) -> None:
    for name in names:
        if not FILE_NAME.fullmatch(name):
            raise PydanticCustomError(
                "wrong_suffix",
                f"{name[:100]!r} is no file of a model that is read here. Upload .safetensors, .json, "
                ".jinja, .txt and .model files, without folders.",
            )
    if len({name.lower() for name in names}) < len(names):
        raise PydanticCustomError("duplicate_file", "Two files have the same name.")
    if "config.json" not in names:
        raise PydanticCustomError(
            "not_a_model_folder", "There is no config.json among the files: a model's folder has one."
        )
    if not any(name.endswith(".safetensors") for name in names):
        raise PydanticCustomError(
            "no_safetensors", "There are no weights among the files: they end with .safetensors."
        )


class FindingOut(Schema):
    """`error`: it cannot be trained. `warning`: it can, but one should know. `note`: how it is read."""

    code: str
    severity: Literal["error", "warning", "note"]
    sentence: str


class CheckOut(Schema):
    """What a model's folder is and what is wrong with it."""

    ok: bool
    findings: list[FindingOut]
    family: str | None
    parameters: int | None
    context_length: int | None
    vocab_size: int | None
    chat_template: bool
    bytes: int
    memory: Annotated[
        dict[Method, int] | None, Field(description="The least GPU memory in bytes, by method.")
    ]


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
    """Models that people usually start from; `setting` says what the memory figures are for."""

    setting: str
    families: list[FamilyOut]

"""The dataset and the model that a job refers to by id: who owns them, and where they are stored.

Their paths are internal to the server and no user could name them. They are added to the config here, and the
check of a config's paths accepts exactly these paths.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import String, cast, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.principal import Principal
from gpubloom.server.datasets.files import dataset_file, text_file
from gpubloom.server.datasets.service import get_ready_dataset
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.jobs.states import ENDED
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.models.service import get_ready_model, readable_folder
from gpubloom.server.models.tables import Model
from gpubloom.server.problems import Conflict, InvalidInput
from gpubloom.server.settings import Settings
from gpubloom.server.storage.service import StoredKind


@dataclass(frozen=True)
class MixedInput:
    """One more dataset to train on."""

    dataset: Dataset
    path: str
    weight: float


@dataclass(frozen=True)
class Inputs:
    """The dataset and the model that a request names by id; empty if it names paths."""

    dataset: Dataset | None = None
    dataset_path: str | None = None
    model: Model | None = None
    model_path: str | None = None
    eval_dataset: Dataset | None = None
    eval_path: str | None = None
    # The same as plain text, of a dataset that was made from documents.
    text_path: str | None = None
    mix: tuple[MixedInput, ...] = ()

    def put_into(self, config: dict[str, Any]) -> dict[str, Any]:
        """The config with the paths of what was given, and the dataset's mapping unless it says otherwise."""
        filled = dict(config)
        if self.dataset is not None:
            model = filled.get("model")
            pretrained = self.model is not None or (isinstance(model, dict) and bool(model.get("path")))
            filled["data"] = self._data(self.dataset, filled.get("data"), pretrained)
        if self.eval_dataset is not None:
            filled["data"] = self._eval_data(self.eval_dataset, filled.get("data"))
        if self.mix:
            filled["data"] = self._mixed_data(filled.get("data"))
        if self.model is not None:
            filled["model"] = _with_path(filled.get("model"), "model", "path", self.model_path, "model_id")
        return filled

    def _data(self, dataset: Dataset, data: Any, pretrained: bool) -> Any:
        # A new model has no tokenizer yet; plain text needs none of examples' rules.
        if not pretrained and self.text_path is not None and _kind(data) == "text":
            return _with_path(data, "data", "train_path", self.text_path, "dataset_id")
        data = _with_path(data, "data", "train_path", self.dataset_path, "dataset_id")
        if not pretrained and dataset.filename.casefold().endswith(".txt"):
            return data
        if not isinstance(data, dict) or data.get("kind", "examples") != "examples":
            return data
        found = {"kind": "examples", "name": dataset.name, **_mapping(dataset)}
        return {**found, "encoding": dataset.encoding, **data}

    def _eval_data(self, dataset: Dataset, data: Any) -> Any:
        data = _with_path(data, "data", "eval_path", self.eval_path, "eval_dataset_id")
        if not isinstance(data, dict) or data.get("kind") != "examples":
            return data
        mapping = _mapping(dataset)
        return {
            "eval_name": dataset.name,
            "eval_format": mapping["format"],
            "eval_columns": mapping["columns"],
            "eval_encoding": dataset.encoding,
            **data,
        }

    def _mixed_data(self, data: Any) -> Any:
        if self.dataset is None:
            raise InvalidInput.for_field(
                "mix", "Send dataset_id: the datasets of mix are trained together with it.", code="no_data"
            )
        return _with_path(
            data,
            "data",
            "mix",
            [
                {
                    "path": each.path,
                    "name": each.dataset.name,
                    "weight": each.weight,
                    **_mapping(each.dataset),
                    "encoding": each.dataset.encoding,
                }
                for each in self.mix
            ],
            "mix",
        )

    def name_of(self, path: str) -> str | None:
        """What its owner calls the dataset with this path."""
        if self.dataset is not None and path in (self.dataset_path, self.text_path):
            return self.dataset.name
        if self.eval_dataset is not None and path == self.eval_path:
            return self.eval_dataset.name
        return next((each.dataset.name for each in self.mix if each.path == path), None)

    def include(self, path: str) -> bool:
        """Whether a path of the config is one that was put there, or the tokenizer that comes with it."""
        own = [self.dataset_path, self.text_path, self.eval_path, self.model_path]
        own += [each.path for each in self.mix]
        if self.model_path is not None:
            own.append(str(Path(self.model_path) / "tokenizer.json"))
        return path in own


NO_INPUTS = Inputs()


def _mapping(dataset: Dataset) -> dict[str, Any]:
    """Format and columns as inspected: what the preview marked is what is trained."""
    return (dataset.report or {}).get("mapping") or {"format": dataset.format, "columns": dataset.columns}


def _kind(data: Any) -> Any:
    return data.get("kind", "text") if isinstance(data, dict) else "text"


def _with_path(part: Any, name: str, field: str, path: Any, by_id: str) -> Any:
    if part is None:
        part = {}
    if not isinstance(part, dict):
        # Invalid: the validation of the config reports it.
        return part
    if part.get(field):
        raise InvalidInput.for_field(
            f"config.{name}.{field}",
            f"Remove {name}.{field}: send either {by_id} or {name}.{field}, not both.",
            code="contradictory_fields",
        )
    return {**part, field: path}


async def find_inputs(
    session: AsyncSession,
    principal: Principal,
    settings: Settings,
    *,
    dataset_id: UUID | None,
    model_id: UUID | None,
    eval_dataset_id: UUID | None = None,
    mix: Sequence[tuple[UUID, float]] = (),
) -> Inputs:
    """The user's own dataset and model, ready for use. Those of other users are not found."""
    dataset = dataset_path = text_path = model = model_path = None
    if dataset_id is not None:
        with _as_field("dataset_id"):
            dataset = await get_ready_dataset(session, principal, dataset_id)
        dataset_path = str(dataset_file(settings, dataset))
        if dataset.documents is not None:
            text_path = str(text_file(settings, dataset))
    if model_id is not None:
        with _as_field("model_id"):
            model = await get_ready_model(session, principal, model_id)
            model_path = str(readable_folder(settings, model))
    held = held_path = None
    if eval_dataset_id is not None:
        with _as_field("eval_dataset_id"):
            held = await get_ready_dataset(session, principal, eval_dataset_id)
        held_path = str(dataset_file(settings, held))
    mixed = []
    for number, (mixed_id, weight) in enumerate(mix):
        with _as_field(f"mix.{number}.dataset_id"):
            more = await get_ready_dataset(session, principal, mixed_id)
        mixed.append(MixedInput(more, str(dataset_file(settings, more)), weight))
    ids = [dataset_id, *(each.dataset.id for each in mixed)]
    for number, each in enumerate(mixed):
        if each.dataset.id in ids[: number + 1]:
            raise InvalidInput.for_field(
                f"mix.{number}.dataset_id",
                f"{each.dataset.name} is chosen twice. Choose it once and raise its weight.",
                code="contradictory_fields",
            )
    return Inputs(dataset, dataset_path, model, model_path, held, held_path, text_path, tuple(mixed))


@contextmanager
def _as_field(field: str) -> Iterator[None]:
    """Report a conflict as an error of this field of the request."""
    try:
        yield
    except Conflict as conflict:
        raise InvalidInput.for_field(field, conflict.detail, code=conflict.code) from conflict


async def find_use(session: AsyncSession, kind: StoredKind, row_id: UUID) -> str | None:
    """A job that has not ended and needs this dataset or model, in a sentence."""
    columns = (
        (TrainingJob.dataset_id, TrainingJob.eval_dataset_id)
        if kind == "dataset"
        else (TrainingJob.model_id,)
    )
    refers = or_(*(column == row_id for column in columns))
    if kind == "dataset":
        # Mixed datasets are in the config by their paths, and a path holds the id.
        refers = or_(refers, cast(TrainingJob.config, String).contains(f"/{row_id}/"))
    name = await session.scalar(
        select(TrainingJob.name).where(refers, TrainingJob.status.not_in(ENDED)).limit(1)
    )
    return None if name is None else f"The job {name} still uses this {kind}."

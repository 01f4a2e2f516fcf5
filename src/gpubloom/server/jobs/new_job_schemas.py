"""The JSON of plans and of new jobs."""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, JsonValue

from gpubloom.offers.prices import PriceKind
from gpubloom.plan import NearestFit, Needs, Plan, TrainConfig, limits
from gpubloom.plan.tasks import SweepSettings
from gpubloom.server.projects.schemas import ProjectIn
from gpubloom.server.schema import Line, Schema, Writable, described_as

DatasetWeight = Annotated[float, Field(gt=0, le=limits.MAX_DATASET_WEIGHT, allow_inf_nan=False)]


class MixedDatasetIn(Schema):
    """One more dataset to train on together with `dataset_id`."""

    dataset_id: UUID
    weight: DatasetWeight = Field(
        1.0, description="How often an epoch trains each example of the dataset; 0.5 trains half of them."
    )


class PlanRequest(Writable):
    """A training config and the machine that should run it."""

    config: Annotated[dict[str, Any], described_as(TrainConfig)] = Field(
        default_factory=dict,
        description="The config fields that differ from the defaults. camelCase names are accepted.",
    )
    project_id: UUID | None = Field(
        None,
        description="If the config has no data path or no model, the data and the model size of this project "
        "are used.",
    )
    dataset_id: UUID | None = Field(None, description="One of your datasets, instead of a data path.")
    eval_dataset_id: UUID | None = Field(
        None, description="One of your datasets to evaluate on, instead of an eval split of the data."
    )
    mix: Annotated[list[MixedDatasetIn], Field(max_length=limits.MAX_MIXED_DATASETS)] = Field(
        [],
        description="More of your datasets to train on together with `dataset_id`, each with a weight. The "
        "weight of `dataset_id` itself is data.weight of the config.",
    )
    model_id: UUID | None = Field(None, description="One of your models, instead of model.path.")
    gpu_type: Annotated[Line, Field(min_length=1, max_length=64)] | None = Field(
        None,
        description="The GPU by name, such as H200. If empty: a GPU if the server has one, "
        "otherwise the CPU.",
    )
    host_memory: Annotated[int, Field(gt=0, le=1_000_000)] | None = Field(
        None, description="Required host memory (RAM) in GB."
    )


class Finder(Schema, SweepSettings):
    """The range and number of steps of a learning-rate finder."""


class OfferTaken(Schema):
    """The offer to rent. `POST /offers` lists the offers."""

    provider: Annotated[Line, Field(min_length=1, max_length=32)]
    gpu: Annotated[Line, Field(min_length=1, max_length=100)]
    gpus: Annotated[int, Field(ge=1, le=1_024)] = 1
    kind: PriceKind = "on_demand"
    region: Annotated[Line, Field(min_length=1, max_length=100)] | None = None


class FailoverPreference(Schema):
    """Which offers come next when the chosen one has no machine and `failover` names none."""

    order: Literal["cost", "time"] = Field(
        "cost", description="cost: the lowest price first. time: the shortest usual wait and start first."
    )
    providers: Annotated[list[Annotated[Line, Field(min_length=1, max_length=32)]], Field(max_length=50)] = (
        Field([], description="Only these providers. Empty: any that is connected.")
    )


Dollars = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Hours = Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)]
Failover = Annotated[
    Annotated[list[OfferTaken], Field(max_length=5)] | None,
    Field(
        description="Offers to take, in this order, when the chosen one has no machine. If empty: the same "
        "GPU at other connected providers, by `failover_by`. An empty list: none. One budget covers all."
    ),
]
SecretNames = Annotated[
    Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=100)] | None,
    Field(
        description="Names of the secrets that the job gets as environment variables. If empty: all "
        "secrets of the user and the project."
    ),
]


class NewJob(PlanRequest):
    """A new job, for an existing project or for a new project that is created together with the job."""

    READ_ONLY = frozenset(
        {"id", "user_id", "status", "start_time", "end_time", "error_message", "created_at", "updated_at"}
    )

    kind: Literal["train", "find_learning_rate"] = "train"
    finder: Finder | None = Field(None, description="Only for kind find_learning_rate.")
    project: ProjectIn | None = None
    name: Annotated[Line, Field(min_length=1, max_length=120)] | None = None
    max_attempts: Annotated[int, Field(ge=1, le=1_000)] = 5
    offer: OfferTaken | None = Field(
        None, description="The offer of a rented machine. If empty: a machine of this server."
    )
    budget: Dollars | None = Field(
        None,
        description="Budget in US dollars. The job is paused before its cost exceeds the budget. If empty, a "
        "job on a rented machine gets twice the estimated cost.",
    )
    max_hours: Hours | None = Field(
        None,
        description="The job is paused after this number of billed hours. If empty, a job on a rented "
        "machine gets twice the estimated time.",
    )
    failover: Failover = None
    failover_by: FailoverPreference = FailoverPreference()
    secrets: SecretNames = None


class MachinePlan(Schema):
    """The plan of the job on a machine as it was asked for, whether or not one is connected."""

    machine: str
    reason: str | None
    plan: Plan | None
    needs: Needs | None
    options: list[NearestFit]


class PlanAnswer(Schema):
    """Whether the job fits on a machine, and its plan. If it does not fit: `reason`, `needs`, `options`."""

    fits: bool
    code: str | None = None
    reason: str | None
    plan: Plan | None
    machine: str | None
    needs: Needs | None = Field(
        None, description="The least memory that the job needs, and what the machine has."
    )
    options: list[NearestFit] = Field(
        [], description="Settings with which the job would fit; those that change least come first."
    )
    requested_machine: MachinePlan | None = Field(
        None,
        description="If the job cannot start here because of its data or because no such machine is "
        "connected: its plan on the machine that was asked for.",
    )
    defaults: dict[str, JsonValue] | None = Field(
        None, description="The values that the job would use for the fields that the config leaves out."
    )

"""The JSON of script jobs. Amounts are in US dollars."""

from typing import Annotated
from uuid import UUID

from pydantic import AliasChoices, Field, model_validator

from gpubloom.server.jobs.new_job_schemas import Failover, FailoverPreference, OfferTaken, SecretNames
from gpubloom.server.jobs.states import Status
from gpubloom.server.offers import Preferences
from gpubloom.server.rentals.schemas import CapabilityOut, LimitsOut
from gpubloom.server.schema import Flag, Line, MetricNumber, Number, Schema, Span, Storable, Whole
from gpubloom.server.storage.schemas import StoreOut

MOST_FILES = 2_000
# The largest request, by address.
FOLDERS = dict.fromkeys(("/api/ml-jobs", "/api/ml-jobs/quote"), 32 << 20)
_Name = Annotated[Line, Field(min_length=1, max_length=100)]
_Path = Annotated[str, Field(min_length=1, max_length=400), Storable]
_Words = Annotated[list[Annotated[str, Field(max_length=4_000), Storable]], Field(max_length=500)]
_Dollars = Annotated[Number, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
_Hours = Annotated[Number, Field(gt=0, le=100_000, allow_inf_nan=False)]


class FolderFile(Schema):
    """A file of the job's folder. Exactly one of text and base64 is set."""

    path: _Path
    text: str | None = None
    base64: str | None = None


class Overrides(Schema):
    """Requirements, such as GPU memory and hours, that replace those found in the script."""

    gpu_memory_gb: Annotated[Number, Field(ge=0, le=100_000, allow_inf_nan=False)] | None = Field(
        None, validation_alias=AliasChoices("gpu_memory_gb", "gpu_memory")
    )
    duration_hours: _Hours | None = None
    gpus: Annotated[Whole, Field(ge=0, le=1_024)] | None = None
    interactive: Flag | None = None
    multi_node: Flag | None = None
    timeout_seconds: Annotated[Number, Field(gt=0, le=360_000_000, allow_inf_nan=False)] | None = Field(
        None, description="The same limit as max_hours, in seconds. If both are set, max_hours is used."
    )
    framework: _Name | None = Field(
        None, description="Ignored. The imports of the script decide which packages it needs."
    )

    @property
    def ignored(self) -> list[str]:
        return [] if self.framework is None else ["requirements.framework"]


class NewMlJob(Schema):
    """A script or a folder with a script, and where to run it."""

    code: Annotated[str, Field(max_length=1_000_000), Storable] | None = Field(
        None, description="One script or notebook, instead of files."
    )
    files: list[FolderFile] = Field([], max_length=MOST_FILES)
    entry: _Path | None = Field(None, description="The file to run. Default: train.py, or the only file.")
    arguments: _Words = Field([], description="The command-line arguments of the script.")
    name: Annotated[Line, Field(min_length=1, max_length=120)] | None = None
    project_id: UUID | None = Field(
        None, description="Default: the project Scripts, which is created if needed."
    )
    provider: _Name | None = Field(
        None, description="A provider, or `local` for the server's machine. Null: the recommended offer."
    )
    offer: OfferTaken | None = None
    constraints: Preferences = Preferences()
    requirements: Overrides | None = None
    packages: Annotated[list[_Name], Field(max_length=200)] | None = Field(
        None,
        description="The packages that pip installs on a rented machine. Null: the packages that "
        "the script imports.",
    )
    environment: Annotated[dict[str, str], Field(max_length=100)] = Field(
        {},
        description="Environment variables of the script. They are stored as plain text: do not "
        "put secrets here.",
    )
    datasets: Annotated[
        list[Annotated[Line, Field(min_length=1, max_length=1_000)]], Field(max_length=20)
    ] = Field(
        [],
        description="Named datasets, and https://, hf://, s3:// or gs:// addresses, copied to data/NAME next "
        "to the script. NAME is the name of the dataset, or the last part of the address.",
    )
    budget: _Dollars | None = Field(
        None, description="Budget in US dollars. If empty, a rented machine gets twice the estimated cost."
    )
    max_hours: _Hours | None = Field(
        None, description="Time limit in hours. If empty, a rented machine gets twice the estimated time."
    )
    failover: Failover = None
    failover_by: FailoverPreference = FailoverPreference()
    secrets: SecretNames = None
    network: Flag = Field(False, description="Network access on the server's machine. Admins only.")
    confirmed: Flag = Field(
        False,
        description="An admin confirms that the script may run on the server's machine without a sandbox.",
    )

    @model_validator(mode="after")
    def _timeout_is_the_longest_time(self) -> "NewMlJob":
        said = self.requirements
        if said is not None and said.timeout_seconds is not None and self.max_hours is None:
            self.max_hours = said.timeout_seconds / 3_600
        return self

    @property
    def ignored(self) -> list[str]:
        return [] if self.requirements is None else self.requirements.ignored


class UploadedFiles(Schema):
    """The files of a job as they were uploaded. `changed`: those that the script changed or removed since."""

    items: list[FolderFile]
    changed: list[str]


class StartedMlJob(Schema):
    """A queued script job. `reasons`: why this provider was chosen, and warnings."""

    job_id: UUID
    provider: str
    estimated_cost: Span
    status_url: str
    reasons: list[str]
    ignored: list[str] = Field([], description="Fields of the request that have no effect.")


class Quote(Schema):
    """Where a job would run. Send `offer` to get this placement; null means the server's machine."""

    provider: str
    offer: OfferTaken | None
    estimated_cost: Span
    limits: LimitsOut | None = Field(
        description="The limits that the job would have. None: the server's machine."
    )
    switch_off: CapabilityOut | None = Field(
        description="Whether the rented machine ends its own bill if the server never comes back."
    )
    reasons: list[str]
    store: StoreOut | None = Field(description="What the files of the job would go through.")
    problem: str | None = Field(description="What has to be done before the job can start there.")
    ignored: list[str] = Field([], description="Fields of the request that have no effect.")


class Progress(Schema):
    step: int | None
    total_steps: int | None
    epoch: float | None
    total_epochs: float | None
    loss: MetricNumber | None
    eta_seconds: float | None


class MlJobStatus(Schema):
    """The state of a script job. `logs`: newest lines. `estimated_total`: likely total cost, if known."""

    id: UUID
    provider: str
    status: Status
    progress: Progress
    logs: list[str]
    cost_so_far: float
    estimated_total: float | None
    error: str | None


class TemplateFileOut(Schema):
    path: str
    text: str


class TemplateOut(Schema):
    """A template folder that runs without changes. `provider`: the provider that it is intended for."""

    name: str
    title: str
    provider: str
    description: str
    files: list[TemplateFileOut]
    arguments: list[str]
    datasets: list[str]
    gpu: str | None


class Templates(Schema):
    items: list[TemplateOut]

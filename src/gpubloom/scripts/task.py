"""What a job of kind `script` is asked to do: run a person's own files, as they are.

The files lie in the folder `work` of the run directory; the script runs there and writes there.
"""

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from gpubloom.agent.environment import is_secret
from gpubloom.errors import InputError
from gpubloom.plan.validation import InvalidConfig, Part

WORK_FOLDER = "work"
# In place of a value in `resume_arguments`: the newest checkpoint, as a path inside the work folder.
NEWEST_CHECKPOINT = "PATH"

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_PATH = 400
# Of one part of a path, by the usual file systems.
_LONGEST_NAME = 255


def checked_path(path: str) -> str:
    """A file's path inside the work folder, in one spelling. ValueError with a sentence for any other."""
    parts = PurePosixPath(path).parts
    if not parts or path.endswith("/"):
        raise InputError("invalid_file_name", "A file needs a name.")
    if path.startswith("/") or ".." in parts or "\\" in path or "\0" in path:
        raise InputError(
            "path_outside_folder",
            f"{path!r} is outside the folder of the script: use a path relative to that folder.",
        )
    if hidden := next((part for part in parts if part.startswith(".")), None):
        raise InputError(
            "hidden_file",
            f"{path!r} is hidden ({hidden}): hidden files cannot be part of a job, so rename it.",
        )
    longest = max(len(part.encode("utf-8", "replace")) for part in parts)
    if (
        len(path.encode("utf-8", "replace")) > _LONGEST_PATH
        or longest > _LONGEST_NAME
        or not path.isprintable()
    ):
        raise InputError(
            "invalid_file_name",
            f"The file name {path[:60]!r}… is too long or contains characters that cannot be printed.",
        )
    return str(PurePosixPath(*parts))


def _checked_environment(values: dict[str, str]) -> dict[str, str]:
    for name, value in values.items():
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            raise PydanticCustomError(
                "invalid_variable",
                f"{name!r} is not a valid environment variable name, or its value contains a NUL character.",
            )
        if is_secret(name, value):
            raise PydanticCustomError(
                "secret_variable",
                f"{name} looks like a secret or a setting of the server. Environment variables of a job are "
                "stored in plain text, so this variable is not allowed.",
            )
    return values


HubName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$", max_length=200)]


class ScriptTask(Part):
    """Run `entry` with its arguments in the work folder."""

    kind: Literal["script"] = "script"
    entry: Annotated[str, AfterValidator(checked_path)] = "train.py"
    arguments: tuple[Annotated[str, Field(max_length=4_000)], ...] = Field((), max_length=500)
    packages: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field((), max_length=200)
    environment: Annotated[dict[str, str], AfterValidator(_checked_environment)] = Field(
        default_factory=dict,
        max_length=100,
        description="Environment variables of the script; they are stored in plain text, so use no secrets.",
    )
    network: bool = Field(
        False,
        description="Whether the script has network access on the server's machine; rented machines always "
        "have it.",
    )
    sandboxed: bool = Field(
        True,
        description="Whether the script runs in a sandbox on the server's machine; false only if an admin "
        "confirmed it.",
    )
    datasets: tuple[str, ...] = Field(
        (),
        max_length=20,
        description="Named datasets and addresses of data, which are copied into the folder of the script.",
    )
    hub_models: tuple[HubName, ...] = Field(
        (),
        max_length=20,
        description="Models of the Hugging Face Hub that the script loads; some providers fetch them early.",
    )
    hub_datasets: tuple[tuple[HubName, ...], ...] = Field(
        (),
        max_length=20,
        description="Datasets of the Hugging Face Hub that the script loads: a name, and perhaps a config.",
    )
    total_steps: int | None = Field(
        None, ge=1, description="Number of training steps, if known from the script."
    )
    resumes: bool = Field(False, description="Whether the script can resume from its checkpoints.")
    resume_arguments: tuple[str, ...] = Field(
        (), description="Command-line arguments added from the second attempt on, if a checkpoint exists."
    )
    checkpoint_folder: str | None = Field(
        None, description="Folder of the checkpoints, inside the work folder."
    )


def script_task(fields: dict[str, Any]) -> ScriptTask:
    """The task from JSON values; ValueError with a sentence that names what is wrong."""
    try:
        return ScriptTask.model_validate(fields)
    except ValidationError as problem:
        raise InvalidConfig(problem, ScriptTask) from None

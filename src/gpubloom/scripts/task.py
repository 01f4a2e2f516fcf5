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


def checked_path(path: str) -> str:
    """A file's path inside the work folder, in one spelling. ValueError with a sentence for any other."""
    parts = PurePosixPath(path).parts
    if not parts or path.endswith("/"):
        raise InputError("invalid_file_name", "A file needs a name.")
    if path.startswith("/") or ".." in parts or "\\" in path or "\0" in path:
        raise InputError(
            "path_outside_folder", f"{path!r} does not stay inside the folder; name files relative to it."
        )
    if hidden := next((part for part in parts if part.startswith(".")), None):
        raise InputError(
            "hidden_file", f"{path!r} is hidden ({hidden}); hidden files do not travel with a job."
        )
    if len(path.encode("utf-8", "replace")) > _LONGEST_PATH or not path.isprintable():
        raise InputError(
            "invalid_file_name",
            f"The name {path[:60]!r}… is too long or holds characters that cannot be shown.",
        )
    return str(PurePosixPath(*parts))


def _checked_environment(values: dict[str, str]) -> dict[str, str]:
    for name, value in values.items():
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            raise PydanticCustomError(
                "invalid_variable",
                f"{name!r} is no name of an environment variable, or its value holds a NUL.",
            )
        if is_secret(name, value):
            raise PydanticCustomError(
                "secret_variable",
                f"{name} looks like a secret or a setting of the server. A job's environment is stored in "
                "plain text, so such variables are not taken.",
            )
    return values


class ScriptTask(Part):
    """Run `entry` with its arguments in the work folder."""

    kind: Literal["script"] = "script"
    entry: Annotated[str, AfterValidator(checked_path)] = "train.py"
    arguments: tuple[Annotated[str, Field(max_length=4_000)], ...] = Field((), max_length=500)
    packages: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field((), max_length=200)
    environment: Annotated[dict[str, str], AfterValidator(_checked_environment)] = Field(
        default_factory=dict, max_length=100, description="Stored in plain text: no secrets."
    )
    network: bool = Field(False, description="On this machine; rented ones always have a network.")
    sandboxed: bool = Field(True, description="On this machine; False only where an admin confirmed it.")
    datasets: tuple[str, ...] = Field((), max_length=20, description="Named datasets, put beside the script.")
    total_steps: int | None = Field(None, ge=1, description="How many it takes, where the script says so.")
    resumes: bool = Field(False, description="Whether the script can go on from what it saved.")
    resume_arguments: tuple[str, ...] = Field(
        (), description="Added from the second attempt on, once there is a checkpoint."
    )
    checkpoint_folder: str | None = Field(None, description="Where it saves, inside the work folder.")


def script_task(fields: dict[str, Any]) -> ScriptTask:
    """The task from JSON values; ValueError with a sentence that names what is wrong."""
    try:
        return ScriptTask.model_validate(fields)
    except ValidationError as problem:
        raise InvalidConfig(problem, ScriptTask) from None

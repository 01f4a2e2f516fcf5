"""Builds a TrainConfig from options, a config file and environment variables.

In order of precedence: --set, other options, config file, environment, .env, defaults. Starts no process and
prints nothing.
"""

import contextlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gpubloom.errors import InputError
from gpubloom.json_files import read_json
from gpubloom.plan import InvalidConfig, TrainConfig, demo_fields
from gpubloom.plan.families import read_decoder
from gpubloom.plan.model_config import folder_context_length

Fields = dict[str, Any]

# Environment variables, and the field that each one sets.
VARIABLES = {
    "TRAIN_DATA_PATH": "data.train_path",
    "EVAL_DATA_PATH": "data.eval_path",
    "EPOCHS": "epochs",
    "BATCH_SIZE": "batch_size",
    "LEARNING_RATE": "learning_rate",
    "CHECKPOINT_DIR": "checkpoint.directory",
}
DEFAULT_TRAIN_PATH = "data/train"
DEFAULT_EVAL_PATH = "data/eval"
_LONGEST_NAME = 40


def build_config(
    *,
    flags: Mapping[str, Any],
    assignments: Sequence[str],
    config_file: Path | None,
    environment: Mapping[str, str],
    folder: Path,
    defaults: Mapping[str, Any] = {},
    fill_in_data: bool = True,
) -> TrainConfig:
    """The config for a new run started in `folder`; InputError when a setting is wrong.

    Without any data it is the demo, unless `fill_in_data` is False. `defaults` are those of a command.
    """
    said = nested(defaults)
    heard: dict[str, tuple[str, str]] = {}
    for where, source in ((".env", read_dotenv(folder / ".env")), ("the environment", environment)):
        variables = [name for name in VARIABLES if source.get(name)]
        _merge(said, nested({VARIABLES[name]: source[name] for name in variables}))
        heard |= {VARIABLES[name]: (source[name], f"set by {name} in {where}") for name in variables}
    if config_file is not None:
        _merge(said, _validated(read_json(config_file)).model_dump(exclude_unset=True))
    _merge(said, nested({name: value for name, value in flags.items() if value is not None}))
    _merge(said, nested(dict(_assignment(text) for text in assignments)))
    origins = {name: where for name, (value, where) in heard.items() if _value(said, name) == value}
    fields = _with_data(said, folder) if fill_in_data else said
    if not fields.get("name") and (name := _data_name(fields.get("data"))):
        fields["name"] = name
    for name in ("train_path", "eval_path"):
        _make_absolute(fields.get("data"), name, folder)
    for each in (fields.get("data") or {}).get("mix") or []:
        _make_absolute(each, "path", folder)
    _make_absolute((fields.get("data") or {}).get("tokenizer"), "path", folder)
    _make_absolute(fields.get("checkpoint"), "directory", folder)
    _make_absolute(fields.get("model"), "path", folder)
    _fit_positions(fields.get("model"))
    return _validated(fields, origins)


def _fit_positions(model: Fields | None) -> None:
    """Rows of a model folder are no longer than its positions, unless somebody says how long they are."""
    if not model or not model.get("path") or model.get("context_length") or model.get("rope_scaling"):
        return
    # A folder that cannot be read is reported with everything else that is wrong.
    with contextlib.suppress(ValueError, OSError):
        positions = read_decoder(Path(model["path"])).max_positions
        if folder_context_length(positions) != folder_context_length(None):
            model["context_length"] = folder_context_length(positions)


def read_dotenv(path: Path) -> dict[str, str]:
    """NAME=value lines; # comments, `export` and quotes are supported, variables are not expanded."""
    if not path.is_file():
        return {}
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as problem:
        raise InputError(
            "unreadable_file", f"{path} is not UTF-8 text ({problem.reason}): save it as UTF-8, or remove it."
        ) from None
    found = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip().removeprefix("export ")
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError("invalid_option", f"{path}, line {number}: expected NAME=value.")
        value = value.strip()
        if value[:1] in {'"', "'"} and value[-1:] == value[:1] and len(value) > 1:
            value = value[1:-1]
        else:
            value = value.partition(" #")[0].rstrip()
        found[name.strip()] = value
    return found


def nested(fields: Mapping[str, Any]) -> Fields:
    """{"a.b": 1} as {"a": {"b": 1}}."""
    result: Fields = {}
    for name, value in fields.items():
        *parents, last = name.split(".")
        _merge(result, _wrap(parents, {last: value}))
    return result


def _value(fields: object, name: str) -> object:
    for part in name.split("."):
        fields = fields.get(part) if isinstance(fields, dict) else None
    return fields


def _with_data(said: Fields, folder: Path) -> Fields:
    """Fills in the training text if it is not set: ./data/train if it exists, else the demo."""
    data = said.get("data")
    if not isinstance(data, dict | None) or (data or {}).get("train_path"):
        return said
    found: Fields = {}
    if (folder / DEFAULT_TRAIN_PATH).exists():
        found = {"data": {"train_path": DEFAULT_TRAIN_PATH}}
        if (folder / DEFAULT_EVAL_PATH).exists():
            found["data"]["eval_path"] = DEFAULT_EVAL_PATH
    else:
        found = demo_fields(said)
    _merge(found, said)
    return found


def _data_name(data: object) -> str | None:
    """The name of the training file or folder, for the name of the run; None: the default name."""
    path = data.get("train_path") if isinstance(data, dict) else None
    if not isinstance(path, str):
        return None
    stem = Path(path).name.partition(".")[0]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")[:_LONGEST_NAME] or None


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise InputError(
            "invalid_option",
            f"--set {text}: expected FIELD=VALUE, such as optimizer.weight_decay=0.05.",
        )
    try:
        return name.strip(), json.loads(value)
    except json.JSONDecodeError:
        return name.strip(), value
    except RecursionError:
        raise InputError("invalid_option", f"--set {name}: the JSON is nested too deeply.") from None


def _merge(into: Fields, more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, dict):
            inner = into.setdefault(name, {})
            if isinstance(inner, dict):
                _merge(inner, value)
                continue
        into[name] = value


def _wrap(parents: Sequence[str], fields: Fields) -> Fields:
    for parent in reversed(parents):
        fields = {parent: fields}
    return fields


def _make_absolute(part: object, name: str, folder: Path) -> None:
    """A run can be repeated from any folder, so its paths do not depend on the current folder."""
    if isinstance(part, dict) and isinstance(part.get(name), str) and part[name] and "://" not in part[name]:
        part[name] = os.path.normpath(folder / Path(part[name]).expanduser())


def _validated(fields: Fields, origins: Mapping[str, str] | None = None) -> TrainConfig:
    try:
        return TrainConfig.model_validate(fields)
    except ValidationError as problem:
        raise InvalidConfig(problem, TrainConfig, origins) from None

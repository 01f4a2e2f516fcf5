"""The pre-flight of a job: its dataset rendered with its model, in a confined process, and kept.

A pre-flight of a dataset is stored in the dataset's folder under a key of everything it depends on, so that
it is made once, serves the plan and the start, and goes with the dataset.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import anyio.to_thread

from gpubloom.datasets import ExampleFile, ReadingOptions, example_files
from gpubloom.datasets.remote_data import is_remote
from gpubloom.plan import CountedData, TrainConfig
from gpubloom.server.datasets.files import datasets_folder
from gpubloom.server.datasets.preflight_process import named_files
from gpubloom.server.jobs.inputs import Inputs
from gpubloom.server.problems import InvalidInput
from gpubloom.server.settings import Settings
from gpubloom.server.storage import children
from gpubloom.traincard.atomic_write import read_json_object, replace_file

MODULE = "gpubloom.server.datasets.preflight_process"
_SECONDS = 300
_VERSION = 3
_KEPT = 20
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json")


def _request(config: TrainConfig, inputs: Inputs) -> dict[str, Any]:
    data = config.data
    if data.kind != "examples" or data.train_path is None or data.tokenizer.path is None:
        raise InvalidInput(
            "A pre-flight needs a dataset of examples and a model with a tokenizer.",
            code="preflight_needs_examples",
        )
    if is_remote(data.train_path) or is_remote(data.eval_path):
        raise InvalidInput(
            "A pre-flight reads files of this server. Data with an address is read when the job starts.",
            code="preflight_needs_examples",
        )
    train, evaluation = example_files(data)
    options = ReadingOptions.of(data, config.context_length)

    def described(file: ExampleFile) -> dict[str, Any]:
        return {
            "path": str(file.path),
            "name": inputs.name_of(str(file.path)) or file.title,
            "format": file.format,
            "columns": file.columns,
            "encoding": file.encoding,
            "weight": file.weight,
        }

    return {
        "files": {
            "train": [described(file) for file in train],
            "eval": None if evaluation is None else described(evaluation),
        },
        "options": {name: getattr(options, name) for name in ReadingOptions.__dataclass_fields__},
        "packing": data.packing,
        "tokenizer": data.tokenizer.path,
        "template": data.template_name,
        "rope": None
        if config.model.rope_scaling is None
        else {"kind": config.model.rope_scaling, "factor": config.model.rope_factor},
    }


def _stored_at(settings: Settings, request: dict[str, Any]) -> Path | None:
    """Where this very pre-flight is kept; None where the data is no uploaded dataset."""
    files = named_files(request)
    folder = Path(files[0]["path"]).parent
    if folder.parent != datasets_folder(settings):
        return None
    paths = [Path(file["path"]) for file in files]
    paths += [Path(request["tokenizer"]).with_name(name) for name in _TOKENIZER_FILES]
    states = []
    for path in paths:
        try:
            about = path.stat()
            states.append((str(path), about.st_size, about.st_mtime_ns))
        except OSError:
            states.append((str(path), -1, -1))
    asked = json.dumps([_VERSION, request, states], sort_keys=True)
    return folder / "preflights" / f"{hashlib.blake2b(asked.encode(), digest_size=16).hexdigest()}.json"


def _read(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        return read_json_object(path)
    except (OSError, ValueError):
        return None


def _keep(path: Path, found: dict[str, Any]) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    replace_file(path, json.dumps(found))
    kept = sorted(path.parent.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
    for old in kept[:-_KEPT]:
        old.unlink(missing_ok=True)


async def run_preflight(settings: Settings, config: TrainConfig, inputs: Inputs) -> dict[str, Any]:
    """What the job would train on; InvalidInput says why it could not start."""
    request = _request(config, inputs)
    stored = await anyio.to_thread.run_sync(_stored_at, settings, request)
    if (found := await anyio.to_thread.run_sync(_read, stored)) is not None:
        return found
    try:
        said = await children.answer(
            MODULE,
            {**request, "sandbox": settings.sandbox_mode, "cpu_seconds": 2 * _SECONDS},
            seconds=_SECONDS,
        )
    except children.ChildTookTooLong as error:
        raise InvalidInput(
            f"The pre-flight took longer than {_SECONDS} seconds and was stopped. The job can be started "
            "without it; its plan is then estimated from file sizes.",
            code="preflight_took_too_long",
        ) from error
    except children.TemplateTookTooLong as error:
        raise InvalidInput(str(error), code="template_took_too_long") from error
    except children.ChildFailed as error:
        raise InvalidInput(f"The pre-flight failed. {error}", code="preflight_failed") from error
    if "refused" in said:
        raise InvalidInput(str(said["refused"]), code=str(said["code"]))
    fresh: dict[str, Any] = said["preflight"]
    if stored is not None:
        await anyio.to_thread.run_sync(_keep, stored, fresh)
    return fresh


async def counted_data(settings: Settings, config: TrainConfig, inputs: Inputs) -> CountedData | None:
    """What an earlier pre-flight of this very job counted, for its plan."""
    data = config.data
    if data.kind != "examples" or data.tokenizer.path is None:
        return None
    if is_remote(data.train_path) or is_remote(data.eval_path):
        return None

    def find() -> dict[str, Any] | None:
        return _read(_stored_at(settings, _request(config, inputs)))

    found = await anyio.to_thread.run_sync(find)
    if found is None:
        return None
    train = found["train"]
    return CountedData(train["sequences"], train["tokens"], config.context_length)

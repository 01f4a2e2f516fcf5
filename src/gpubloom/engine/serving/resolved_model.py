"""Finds the model of a path: a run's final model or newest checkpoint, a checkpoint, or a model folder."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from gpubloom.engine import adapter_folder
from gpubloom.engine.checkpoint import checkpoint_folder, is_sharded, list_checkpoints
from gpubloom.engine.llama_folder import CONFIG_FILE, has_weights, is_own
from gpubloom.engine.models.plugin_model import PLUGGED_TYPE
from gpubloom.errors import InputError, shell_word
from gpubloom.json_files import read_json
from gpubloom.plan import TrainConfig


@dataclass(frozen=True)
class ResolvedModel:
    """A folder with weights or an adapter, its base model, and its run."""

    folder: Path
    base: Path | None = None
    run_dir: Path | None = None
    config: TrainConfig | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_adapter(self) -> bool:
        return not has_weights(self.folder)

    @property
    def is_own(self) -> bool:
        """Whether it is a model of the engine's own architecture."""
        return not self.is_adapter and is_own(self.folder)

    @property
    def four_bit(self) -> bool:
        """Whether the adapter was trained on a 4-bit base model."""
        return self.is_adapter and self.config is not None and self.config.method == "qlora"

    @property
    def trained_on_examples(self) -> bool:
        return self.config is not None and self.config.data.kind == "examples"

    @property
    def trained_on_text(self) -> bool:
        return self.config is not None and self.config.data.kind == "text"

    def file(self, name: str) -> Path | None:
        """A file beside the weights, or else in the folder of the base model."""
        folders = [self.folder] if self.base is None else [self.folder, self.base]
        return next((folder / name for folder in folders if (folder / name).is_file()), None)


def find_model(path: Path, base: Path | None = None, *, weights: Path | None = None) -> ResolvedModel:
    """The model of a path; InputError when there is none. `base` overrides the base model of the run.

    `weights`: a folder to take in place of the one of the path, such as its checkpoint in another format.

    The base model in an adapter's own file is not used: a folder from anybody could name any folder.
    """
    run_dir, config = _run_of(path)
    folder = weights or _folder(path, run_dir, config)
    _must_be_safetensors(folder)
    _must_be_known(folder)
    found = ResolvedModel(folder, run_dir=run_dir, config=config)
    if base is not None:
        if not base.is_dir():
            raise InputError("model_not_found", f"The folder {base} of the base model does not exist.")
        return ResolvedModel(folder, base, run_dir, config)
    if found.is_adapter:
        return ResolvedModel(folder, _base_of_adapter(folder, config), run_dir, config)
    started_from = _start_of(config)
    if started_from is not None and not started_from.is_dir():
        note = (
            f"The base model {started_from} no longer exists, so the trained model cannot be compared "
            "with it."
        )
        return ResolvedModel(folder, None, run_dir, config, (note,))
    return ResolvedModel(folder, started_from, run_dir, config)


@contextmanager
def opened_model(path: Path, base: Path | None = None, *, copy: Path) -> Iterator[ResolvedModel]:
    """`find_model` that also takes a sharded checkpoint: its weights lie in `copy` until the context ends."""
    # What an earlier process left that was killed.
    shutil.rmtree(copy, ignore_errors=True)
    folder = _folder(path, *_run_of(path))
    if not is_sharded(folder):
        yield find_model(path, base)
        return
    # It imports torch's sharding, which takes most of a second.
    from gpubloom.engine.converting.convert import convert

    try:
        convert(folder, copy, "safetensors")
        yield find_model(path, base, weights=copy)
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def _folder(path: Path, run_dir: Path | None, config: TrainConfig | None) -> Path:
    is_run = run_dir is not None and run_dir == path.resolve()
    # A checkpoint must hold its weights itself: a folder in it may come from another machine.
    is_checkpoint = path.resolve().parent.name == "checkpoints"
    for folder in (path,) if is_checkpoint else (path, path / "model"):
        if _holds_weights(folder) or is_sharded(folder):
            return folder
        _must_be_safetensors(folder)
    if not is_run or config is None:
        raise InputError("not_a_model_folder", f"{path} is neither a run directory nor a model folder.")
    checkpoints = list_checkpoints(checkpoint_folder(config, path.resolve()))
    if not checkpoints:
        raise InputError("no_checkpoint", f"{path} has no checkpoint yet; wait for the first one.")
    return checkpoints[-1]


def _holds_weights(folder: Path) -> bool:
    return has_weights(folder) or (folder / adapter_folder.WEIGHTS_FILE).is_file()


def _must_be_known(folder: Path) -> None:
    """The parts of a plug-in are trained as blocks; nothing here makes a whole model of them."""
    file = folder / CONFIG_FILE
    settings = read_json(file) if file.is_file() else {}
    if settings.get("model_type") == PLUGGED_TYPE:
        raise InputError(
            "unsupported_architecture",
            f"{folder} has the architecture {settings.get('architecture')!r} of a plug-in. Only its run can "
            "compute such a model. To use the weights, load model.safetensors in code of your own.",
        )


def _must_be_safetensors(folder: Path) -> None:
    """Only safetensors are loaded; other formats must be converted first."""
    if _holds_weights(folder):
        return
    names = (f"{stem}.{ending}" for stem in ("model", "adapter_model") for ending in ("pt", "json"))
    if is_sharded(folder) or any((folder / name).is_file() for name in names):
        raise InputError(
            "needs_conversion",
            f"{folder} is not in safetensors format. Convert it first: "
            f"bloom runs convert-checkpoint {shell_word(folder)} NEW --to safetensors",
        )


def _run_of(path: Path) -> tuple[Path | None, TrainConfig | None]:
    """The run that a path belongs to: a run directory, its final model, or one of its checkpoints.

    Never a config.json beside weights or among checkpoints: those files may have come with them.
    """
    whole = path.resolve()
    if whole.name == "model":
        folder = whole.parent
    elif whole.parent.name == "checkpoints":
        folder = whole.parent.parent
    elif not _holds_weights(whole):
        folder = whole
    else:
        return None, None
    config = _train_config(folder)
    return (None, None) if config is None else (folder, config)


def _train_config(folder: Path) -> TrainConfig | None:
    file = folder / CONFIG_FILE
    if not file.is_file():
        return None
    try:
        # A model folder has a config.json as well.
        return None if "model_type" in read_json(file) else TrainConfig.read(file)
    except ValidationError:
        return None


def _start_of(config: TrainConfig | None) -> Path | None:
    if config is None or config.model.path is None or config.model.random_weights:
        return None
    return Path(config.model.path).expanduser()


def _base_of_adapter(folder: Path, config: TrainConfig | None) -> Path:
    started_from = _start_of(config)
    if started_from is None:
        raise adapter_folder.BaseNeeded(adapter_folder.read_adapter(folder).base_model)
    if not started_from.is_dir():
        raise InputError(
            "model_not_found",
            f"The folder {started_from} of the base model does not exist: restore it, or give the new "
            "folder of the base model.",
        )
    return started_from

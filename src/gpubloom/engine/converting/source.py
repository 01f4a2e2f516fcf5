"""What is converted: which form a folder has, its tensors, and all that lies beside them."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from gpubloom.engine import adapters_on_disk
from gpubloom.engine.checkpoint import checkpoint_folder, is_sharded, list_checkpoints
from gpubloom.engine.checkpoint.format import CHECKSUMS_FILE, PROGRESS_FILE, RANDOM_FILE
from gpubloom.engine.checkpoint.saving import OPTIMIZER_STEM
from gpubloom.engine.checkpoint.sharded import PartReader
from gpubloom.engine.converting.named_tensors import (
    JsonFile,
    NamedTensors,
    PartFiles,
    SafetensorsFiles,
    TorchFile,
)
from gpubloom.engine.export import CONFIG_FILE, WEIGHTS_STEM
from gpubloom.engine.shards.sharding import is_moment
from gpubloom.engine.shards.whole_folder import sha256_of
from gpubloom.plan import TrainConfig
from gpubloom.plan.config import read_json

STATE_FILES = (PROGRESS_FILE, RANDOM_FILE)
_STEMS = (WEIGHTS_STEM, adapters_on_disk.WEIGHTS_STEM)
# What transformers and PEFT call theirs.
_OTHER_TORCH_FILES = {_STEMS[0]: "pytorch_model.bin", _STEMS[1]: "adapter_model.bin"}
_HOLDS_TENSORS = re.compile(
    rf"({'|'.join((*_STEMS, OPTIMIZER_STEM))})(-\d+-of-\d+)?\.(safetensors|safetensors\.index\.json|pt|json)"
    rf"|{'|'.join(map(re.escape, _OTHER_TORCH_FILES.values()))}|.*\.distcp"
)


@dataclass(frozen=True)
class Source:
    """A model, or a checkpoint: then `moments` are there, and the files that say where the run stood."""

    folder: Path
    form: str
    stem: str
    weights: NamedTensors
    moments: NamedTensors | None
    # Files that mean the same beside weights of any form.
    auxiliary_files: tuple[Path, ...]

    @property
    def is_checkpoint(self) -> bool:
        return self.moments is not None

    @property
    def state_files(self) -> list[Path]:
        return [self.folder / name for name in STATE_FILES] if self.is_checkpoint else []


def open_source(path: Path) -> Source:
    """ValueError in one sentence when there is nothing to convert, or it is damaged."""
    folder = _folder(path)
    _must_be_undamaged(folder)
    if not (folder / CONFIG_FILE).is_file():
        raise ValueError(f"{folder} has no {CONFIG_FILE}, which says what the tensors in it are.")
    form = _form(folder)
    assert form is not None
    stem = _STEMS[1] if (folder / adapters_on_disk.CONFIG_FILE).is_file() else _STEMS[0]
    saved = all((folder / name).is_file() for name in STATE_FILES)
    weights, moments = _tensors(folder, form, stem, saved=saved)
    if form == "safetensors" and moments is not None:
        form = "block"
    return Source(folder, form, stem, weights, moments, tuple(_auxiliary_files(folder)))


def _tensors(folder: Path, form: str, stem: str, *, saved: bool) -> tuple[NamedTensors, NamedTensors | None]:
    match form:
        case "sharded":
            reader = PartReader(folder)
            try:
                names = list(reader.shapes())
            except ValueError as problem:
                raise ValueError(f"{folder} is damaged: {problem}.") from None
            weights = PartFiles(folder, reader, [name for name in names if not is_moment(name)])
            moments = [name for name in names if is_moment(name)]
            return weights, PartFiles(folder, reader, moments) if saved and moments else None
        case "torch":
            optimizer = folder / f"{OPTIMIZER_STEM}.pt"
            return TorchFile(_torch_file(folder, stem)), TorchFile(optimizer) if saved else None
        case "json":
            optimizer = folder / f"{OPTIMIZER_STEM}.json"
            return JsonFile(folder / f"{stem}.json"), JsonFile(optimizer) if saved else None
        case _:
            return SafetensorsFiles(folder, stem), SafetensorsFiles(folder, OPTIMIZER_STEM) if saved else None


def _folder(path: Path) -> Path:
    if path.is_file():
        path = path.parent
    if not path.is_dir():
        raise ValueError(f"There is no folder {path}.")
    for folder in (path, path / "model"):
        if _form(folder) is not None:
            return folder
    try:
        config = None if not (path / CONFIG_FILE).is_file() else TrainConfig.read(path / CONFIG_FILE)
    except ValidationError:
        config = None
    if config is None:
        raise ValueError(f"{path} is neither a model, nor a checkpoint, nor a run directory.")
    saved = list_checkpoints(checkpoint_folder(config, path.resolve()))
    if not saved:
        raise ValueError(f"{path} has no checkpoint yet; wait for the first one.")
    return saved[-1]


def _form(folder: Path) -> str | None:
    if is_sharded(folder):
        return "sharded"
    for stem in _STEMS:
        for ending, form in (
            (".safetensors", "safetensors"),
            (".safetensors.index.json", "safetensors"),
            (".json", "json"),
        ):
            if (folder / f"{stem}{ending}").is_file():
                return form
        if _torch_file(folder, stem).is_file():
            return "torch"
    return None


def _torch_file(folder: Path, stem: str) -> Path:
    own, other = folder / f"{stem}.pt", folder / _OTHER_TORCH_FILES[stem]
    return other if other.is_file() and not own.is_file() else own


def _auxiliary_files(folder: Path) -> list[Path]:
    return [
        file
        for file in sorted(folder.iterdir())
        if file.is_file()
        and not file.name.startswith(".")
        and file.name not in {*STATE_FILES, CHECKSUMS_FILE}
        and not _HOLDS_TENSORS.fullmatch(file.name)
    ]


def _must_be_undamaged(folder: Path) -> None:
    """Where checksums were written down, every file must be what it was."""
    if not (folder / CHECKSUMS_FILE).is_file():
        if (folder / PROGRESS_FILE).is_file():
            raise ValueError(f"{folder} is no complete checkpoint: {CHECKSUMS_FILE} is missing.")
        return
    try:
        recorded = read_json(folder / CHECKSUMS_FILE)["sha256"]
        files = {Path(name).name: str(checksum) for name, checksum in recorded.items()}
    except (ValueError, KeyError, AttributeError, json.JSONDecodeError) as problem:
        raise ValueError(f"{folder} is damaged: {CHECKSUMS_FILE} cannot be read ({problem}).") from None
    for name, checksum in files.items():
        if not (folder / name).is_file():
            raise ValueError(f"{folder} is damaged: {name} is missing.")
        if (actual := sha256_of(folder / name)) != checksum:
            raise ValueError(
                f"{folder} is damaged: {name} has the sha256 checksum {actual[:16]}…, "
                f"but {CHECKSUMS_FILE} says {checksum[:16]}…."
            )

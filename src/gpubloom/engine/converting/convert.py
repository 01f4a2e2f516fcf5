"""convert(): reads a model or checkpoint in one form and writes another into a new folder.

`Source` says which form a folder has and gives its tensors and the files that lie with them. The new folder
is complete or absent.
"""

import json
import math
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from pydantic import ValidationError

from gpubloom.engine import adapter_folder
from gpubloom.engine.checkpoint import checkpoint_folder, is_sharded, list_checkpoints
from gpubloom.engine.checkpoint.format import CHECKSUMS_FILE, PROGRESS_FILE, RANDOM_FILE
from gpubloom.engine.checkpoint.saving import OPTIMIZER_STEM
from gpubloom.engine.checkpoint.sharded import PartReader, link_contents
from gpubloom.engine.converting.tensor_formats import (
    JsonFile,
    NamedTensors,
    PartFiles,
    SafetensorsFiles,
    TorchFile,
    each,
    must_be_small,
    write_json,
    write_safetensors,
    write_sharded,
    write_torch,
)
from gpubloom.engine.llama_folder import CONFIG_FILE, WEIGHTS_STEM
from gpubloom.engine.shards.atomic_folder import complete_or_absent, must_have_room, sha256_of, sync_files
from gpubloom.engine.shards.shard_files import is_moment
from gpubloom.errors import InputError
from gpubloom.json_files import read_json
from gpubloom.plan import TrainConfig

STATE_FILES = (PROGRESS_FILE, RANDOM_FILE)
_STEMS = (WEIGHTS_STEM, adapter_folder.WEIGHTS_STEM)
# What transformers and PEFT call theirs.
_OTHER_TORCH_FILES = {_STEMS[0]: "pytorch_model.bin", _STEMS[1]: "adapter_model.bin"}
_HOLDS_TENSORS = re.compile(
    rf"({'|'.join((*_STEMS, OPTIMIZER_STEM))})(-\d+-of-\d+)?\.(safetensors|safetensors\.index\.json|pt|json)"
    rf"|{'|'.join(map(re.escape, _OTHER_TORCH_FILES.values()))}|.*\.distcp"
)

Form = Literal["safetensors", "torch", "json", "sharded", "block"]
FORMS: tuple[Form, ...] = get_args(Form)


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
    def weight_files(self) -> list[Path]:
        """The files that hold the weights; of a sharded checkpoint they hold the moments too."""
        return [
            file
            for file in sorted(self.folder.iterdir())
            if _HOLDS_TENSORS.fullmatch(file.name) and not file.name.startswith(OPTIMIZER_STEM)
        ]

    @property
    def state_files(self) -> list[Path]:
        return [self.folder / name for name in STATE_FILES] if self.is_checkpoint else []

    def bytes_in_fp32(self, *, moments: bool = False) -> int:
        """What a copy takes on disk with its tensors in fp32; `moments`: a run can resume from that copy."""
        tensors = [self.weights, *([self.moments] if moments and self.moments is not None else [])]
        files = [*self.auxiliary_files, *(self.state_files if moments else [])]
        values = sum(math.prod(shape) for each_of in tensors for shape in each_of.shapes().values())
        return 4 * values + sum(file.stat().st_size for file in files)


def open_source(path: Path) -> Source:
    """ValueError in one sentence when there is nothing to convert, or it is damaged."""
    folder = _folder(path)
    _must_be_undamaged(folder)
    if not (folder / CONFIG_FILE).is_file():
        raise InputError(
            "not_a_model_folder", f"{folder} has no {CONFIG_FILE}, so its tensors cannot be identified."
        )
    form = _form(folder)
    assert form is not None
    stem = _STEMS[1] if (folder / adapter_folder.CONFIG_FILE).is_file() else _STEMS[0]
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
                raise InputError("damaged_checkpoint", f"{folder} is damaged: {problem}.") from None
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
        raise InputError("folder_not_found", f"The folder {path} does not exist.")
    for folder in (path, path / "model"):
        if _form(folder) is not None:
            return folder
    try:
        config = None if not (path / CONFIG_FILE).is_file() else TrainConfig.read(path / CONFIG_FILE)
    except ValidationError:
        config = None
    if config is None:
        raise InputError(
            "not_a_model_folder", f"{path} is not a model folder, a checkpoint or a run directory."
        )
    saved = list_checkpoints(checkpoint_folder(config, path.resolve()))
    if not saved:
        raise InputError(
            "no_checkpoint", f"The run {path} has no checkpoint yet: wait for the first checkpoint."
        )
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
            raise InputError(
                "incomplete_checkpoint",
                f"The checkpoint {folder} is incomplete: {CHECKSUMS_FILE} is missing.",
            )
        return
    try:
        recorded = read_json(folder / CHECKSUMS_FILE)["sha256"]
        files = {Path(name).name: str(checksum) for name, checksum in recorded.items()}
    except (ValueError, KeyError, AttributeError) as problem:
        raise InputError(
            "damaged_checkpoint", f"{folder} is damaged: {CHECKSUMS_FILE} cannot be read ({problem})."
        ) from None
    for name, checksum in files.items():
        if not (folder / name).is_file():
            raise InputError("damaged_checkpoint", f"{folder} is damaged: {name} is missing.")
        if (actual := sha256_of(folder / name)) != checksum:
            raise InputError(
                "damaged_checkpoint",
                f"{folder} is damaged: {name} has the sha256 checksum {actual[:16]}…, "
                f"but {CHECKSUMS_FILE} says {checksum[:16]}….",
            )


@dataclass(frozen=True)
class Converted:
    """What was written."""

    source: Path
    target: Path
    source_form: str
    form: Form
    tensors: int
    bytes: int
    files: tuple[str, ...]
    # Whether moments and progress came along: a run can continue from it.
    can_continue: bool


def convert(source: Path, target: Path, form: Form) -> Converted:
    """Writes `target` anew; ValueError in one sentence when the source is wrong or damaged."""
    if target.exists():
        raise InputError("folder_exists", f"The folder {target} already exists: choose a new folder.")
    found = open_source(source)
    if form in {"block", "sharded"} and not found.is_checkpoint:
        raise InputError(
            "no_training_state",
            f"{found.folder} contains a model without optimizer state and progress, which a {form} "
            "checkpoint needs: choose safetensors, torch or json.",
        )
    if form in {"block", "sharded"}:
        _must_be_fp32(found)
    if form == "json":
        must_be_small(found.weights)
    if found.form == "sharded":
        must_have_room(target, found.bytes_in_fp32(moments=form != "safetensors"), "The converted checkpoint")
    with complete_or_absent(target) as folder:
        _write(folder, found, form)
    files = tuple(sorted(file.name for file in target.iterdir()))
    return Converted(
        source=found.folder,
        target=target,
        source_form=found.form,
        form=form,
        tensors=len(found.weights.shapes()),
        bytes=sum((target / name).stat().st_size for name in files if not name.startswith(".")),
        files=files,
        can_continue=found.is_checkpoint and form != "safetensors",
    )


def _write(folder: Path, found: Source, form: Form) -> None:
    moments = None if form == "safetensors" else found.moments
    match form:
        case "torch":
            write_torch(folder / f"{found.stem}.pt", found.weights)
            if moments is not None:
                write_torch(folder / f"{OPTIMIZER_STEM}.pt", moments)
        case "json":
            write_json(folder / f"{found.stem}.json", found.weights)
            if moments is not None:
                write_json(folder / f"{OPTIMIZER_STEM}.json", moments)
        case "sharded":
            assert moments is not None
            write_sharded(folder, dict([*each(found.weights), *each(moments)]))
        case _:
            write_safetensors(folder, found.stem, found.weights)
            if moments is not None:
                write_safetensors(folder, OPTIMIZER_STEM, moments)
    state = [] if moments is None else found.state_files
    for file in (*found.auxiliary_files, *state):
        shutil.copyfile(file, folder / file.name)
    checksums = sync_files(folder, {})
    if form != "safetensors":
        text = json.dumps({"sha256": checksums}, indent=2) + "\n"
        (folder / CHECKSUMS_FILE).write_text(text, encoding="utf-8")
        sync_files(folder, checksums)
    if form == "sharded":
        link_contents(folder)


def _must_be_fp32(found: Source) -> None:
    for tensors in filter(None, (found.weights, found.moments)):
        for name, tensor in each(tensors):
            if tensor.dtype != torch.float32:
                raise InputError(
                    "unsupported_dtype",
                    f"{found.folder}: tensor {name} is {tensor.dtype}, but a run can resume only from "
                    "float32 tensors.",
                )

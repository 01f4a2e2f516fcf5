"""convert(): reads one form, writes another into a new folder that is complete or absent."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch

from gpubloom.engine.checkpoint.format import CHECKSUMS_FILE
from gpubloom.engine.checkpoint.saving import OPTIMIZER_STEM
from gpubloom.engine.checkpoint.sharded import link_contents
from gpubloom.engine.converting.named_tensors import each
from gpubloom.engine.converting.source import Source, open_source
from gpubloom.engine.converting.writing import (
    must_be_small,
    write_json,
    write_safetensors,
    write_sharded,
    write_torch,
)
from gpubloom.engine.shards.whole_folder import complete_or_absent, sync_files

Form = Literal["safetensors", "torch", "json", "sharded", "block"]
FORMS: tuple[Form, ...] = get_args(Form)


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
        raise ValueError(f"{target} exists already: choose a new folder.")
    found = open_source(source)
    if form in {"block", "sharded"} and not found.is_checkpoint:
        raise ValueError(
            f"{found.folder} holds a model without the state of a training run, which a {form} checkpoint "
            "needs: choose safetensors, torch or json."
        )
    if form in {"block", "sharded"}:
        _must_be_fp32(found)
    if form == "json":
        must_be_small(found.weights)
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
                raise ValueError(
                    f"{found.folder}: tensor {name} is {tensor.dtype}; what a run continues from is float32."
                )

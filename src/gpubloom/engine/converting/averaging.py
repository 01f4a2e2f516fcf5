"""average(): the mean of several checkpoints of one run, as a new model folder.

Each tensor is the mean over the sources, computed in fp64 and rounded once to fp32. Of LoRA checkpoints the
adapters are averaged. Moments are not: a run does not resume from a mean. `averaged.json` names the sources.
Sources may have different forms: sharded checkpoints are read as whole ones are.

`python -m gpubloom.engine.converting.averaging --into TARGET CHECKPOINT CHECKPOINT …` is the process that
`bloom runs average-checkpoints` starts. Wrong input ends it with one sentence and status 2.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpubloom.engine import adapter_folder
from gpubloom.engine.checkpoint.format import PROGRESS_FILE
from gpubloom.engine.converting.convert import Source, open_source
from gpubloom.engine.converting.tensor_formats import NamedTensors, write_safetensors
from gpubloom.engine.llama_folder import CONFIG_FILE
from gpubloom.engine.shards.atomic_folder import complete_or_absent, must_have_room, sha256_of, sync_files
from gpubloom.errors import InputError, exit_with
from gpubloom.json_files import read_json
from gpubloom.plan import limits

MANIFEST_FILE = "averaged.json"
_MOST = limits.MAX_AVERAGED_CHECKPOINTS


@dataclass(frozen=True)
class Averaged:
    """What was written."""

    target: Path
    sources: tuple[str, ...]
    tensors: int


class _Mean:
    """The mean of tensors of the same names and shapes, one at a time."""

    def __init__(self, sources: Sequence[NamedTensors], keep_going: Callable[[], None]) -> None:
        self._sources = sources
        self._keep_going = keep_going

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return self._sources[0].shapes()

    def read(self, name: str) -> Tensor:
        self._keep_going()
        total = self._sources[0].read(name).to(torch.float64, copy=True)
        for source in self._sources[1:]:
            total += source.read(name).to(torch.float64)
        return (total / len(self._sources)).to(torch.float32)


def average(paths: Sequence[Path], target: Path, keep_going: Callable[[], None] = lambda: None) -> Averaged:
    """Writes `target` anew; ValueError in one sentence when the sources do not belong together.

    `keep_going` may raise between tensors.
    """
    if not 2 <= len(paths) <= _MOST:
        raise InputError("too_few_checkpoints", f"Name 2 to {_MOST} checkpoints to average.")
    if len({path.resolve() for path in paths}) < len(paths):
        raise InputError("same_checkpoint_twice", "A checkpoint is named twice: name each one once.")
    if target.exists():
        raise InputError("folder_exists", f"The folder {target} already exists: choose a new folder.")
    sources = [open_source(path) for path in paths]
    for other in sources[1:]:
        _must_match(sources[0], other)
    must_have_room(target, sources[0].bytes_in_fp32(), "The mean of the checkpoints")
    with complete_or_absent(target) as folder:
        write_safetensors(folder, sources[0].stem, _Mean([source.weights for source in sources], keep_going))
        for file in sources[0].auxiliary_files:
            if file.name != MANIFEST_FILE:
                shutil.copyfile(file, folder / file.name)
        manifest = {"v": 1, "method": "mean", "sources": [_described(source) for source in sources]}
        (folder / MANIFEST_FILE).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        sync_files(folder, {})
    return Averaged(target, tuple(source.folder.name for source in sources), len(sources[0].weights.shapes()))


def _described(source: Source) -> dict[str, Any]:
    step = read_json(source.folder / PROGRESS_FILE).get("step") if source.is_checkpoint else None
    return {
        "checkpoint": source.folder.name,
        "step": step,
        "sha256": {file.name: sha256_of(file) for file in source.weight_files},
    }


def _must_match(first: Source, other: Source) -> None:
    names = f"{first.folder.name} and {other.folder.name}"
    if first.stem != other.stem:
        raise InputError(
            "checkpoints_differ", f"{names} cannot be averaged: one is an adapter, the other a whole model."
        )
    shapes, others = first.weights.shapes(), other.weights.shapes()
    different = [name for name in {**shapes, **others} if shapes.get(name) != others.get(name)]
    if different:
        raise InputError(
            "checkpoints_differ",
            f"{names} cannot be averaged: their tensors differ, such as {different[0]} "
            f"({shapes.get(different[0])} and {others.get(different[0])}). Name checkpoints of one run.",
        )
    for file in (CONFIG_FILE, adapter_folder.CONFIG_FILE):
        settings, rest = _settings(first.folder / file), _settings(other.folder / file)
        changed = [name for name in {**settings, **rest} if settings.get(name) != rest.get(name)]
        if changed:
            raise InputError(
                "checkpoints_differ",
                f"{names} cannot be averaged: {changed[0]} in {file} is {settings.get(changed[0])!r} and "
                f"{rest.get(changed[0])!r}. Name checkpoints of one run.",
            )


def _settings(file: Path) -> dict[str, Any]:
    return read_json(file) if file.is_file() else {}


def main() -> None:
    parser = argparse.ArgumentParser(prog="gpubloom.engine.converting.averaging")
    parser.add_argument("checkpoints", type=Path, nargs="+")
    parser.add_argument("--into", type=Path, required=True)
    options = parser.parse_args()
    try:
        written = average(options.checkpoints, options.into)
    except (ValueError, OSError) as problem:
        exit_with(problem)
    sys.stdout.write(json.dumps(asdict(written), default=str) + "\n")


if __name__ == "__main__":
    main()

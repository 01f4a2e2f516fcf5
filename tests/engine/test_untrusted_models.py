"""A model folder from anybody leads no loader out of it: upload check, engine and backends refuse it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from gpubloom.engine.export import read_weights
from gpubloom.engine.models.sources import PretrainedWeights
from gpubloom.engine.pretrained_text import ON_CPU, load_pretrained_text
from gpubloom.hub.checking import check_model
from gpubloom.hub.weight_index import UnsafeModelError, check_model_folder
from gpubloom.plan import TrainConfig
from tests.hub.test_checking import shards
from tests.tiny_models import make_tiny_model

INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="session")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Somebody else's model, in several files."""
    return shards(make_tiny_model(tmp_path_factory.mktemp("untrusted") / "theirs"))


@pytest.fixture
def mine(sharded: Path, tmp_path: Path) -> Path:
    """A folder with everything but the weights."""
    folder = tmp_path / "mine"
    shutil.copytree(sharded, folder, ignore=shutil.ignore_patterns("model-*.safetensors"))
    return folder


def lead(folder: Path, place: Callable[[str], str], index: str = INDEX) -> None:
    content = json.loads((folder / INDEX).read_text())
    content["weight_map"] = {name: place(file) for name, file in content["weight_map"].items()}
    (folder / INDEX).unlink()
    (folder / index).write_text(json.dumps(content))


def by_trl(folder: Path) -> None:
    pytest.importorskip("trl")
    from gpubloom.backends.loading import load

    fields = {
        "backend": "trl",
        "method": "full",
        "model": {"path": str(folder)},
        "data": {"train_path": "/nowhere", "kind": "examples"},
        "device": "cpu",
    }
    load(TrainConfig.model_validate(fields), ON_CPU)


LOADERS: dict[str, Callable[[Path], object]] = {
    "transformers": load_pretrained_text,
    "trl": by_trl,
    "engine": lambda folder: PretrainedWeights(folder, cast(Any, None)),
    "own model": lambda folder: read_weights(folder, cast(Any, None)),
}


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize("way", ["relative", "absolute", "link"])
def test_an_index_that_names_files_of_another_folder_is_refused_before_they_are_read(
    mine: Path, sharded: Path, way: str, load: Callable[[Path], object]
) -> None:
    if way == "relative":
        lead(mine, lambda file: f"../{'../' * 20}{sharded.relative_to('/')}/{file}")
    elif way == "absolute":
        lead(mine, lambda file: str(sharded / file))
    else:
        for file in sharded.glob("model-*.safetensors"):
            (mine / file.name).symlink_to(file)
    with pytest.raises(UnsafeModelError) as refused:
        load(mine)
    assert refused.value.code == "index_unsafe"
    assert [finding.code for finding in check_model(mine).findings] == ["index_unsafe"]


@pytest.mark.parametrize("name", ["pytorch_model.bin.index.json", "model.safetensors.index.fp16.json"])
def test_an_index_of_another_format_is_checked_as_well(mine: Path, name: str) -> None:
    lead(mine, lambda file: f"../theirs/{file}", name)
    with pytest.raises(UnsafeModelError):
        load_pretrained_text(mine)


def test_an_index_of_plain_names_is_loaded_also_from_the_cache_of_a_hub(
    sharded: Path, tmp_path: Path
) -> None:
    load_pretrained_text(sharded)
    blobs, snapshot = tmp_path / "repo/blobs", tmp_path / "repo/snapshots/abc"
    shutil.copytree(sharded, blobs)
    snapshot.mkdir(parents=True)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    check_model_folder(snapshot)
    load_pretrained_text(snapshot)

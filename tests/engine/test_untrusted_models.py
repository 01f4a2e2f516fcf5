"""A model folder from anybody leads no loader out of it: upload check, engine and backends refuse it."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from gpubloom.engine.adapter_folder import BaseNeeded, read_adapter
from gpubloom.engine.llama_folder import read_weights
from gpubloom.engine.models.hugging_face.blocks import open_model
from gpubloom.engine.models.weight_sources import PretrainedWeights
from gpubloom.engine.pretrained_text import ON_CPU, load_pretrained_text
from gpubloom.engine.serving.model_registry import ModelRegistry
from gpubloom.engine.serving.resolved_model import find_model
from gpubloom.engine.transformers_loading import load_tokenizer
from gpubloom.errors import InputError
from gpubloom.hub.checking import check_model
from gpubloom.hub.weight_index import UnsafeModelError, check_model_folder
from gpubloom.plan import TrainConfig
from tests.engine.serving.speakers import make_adapter
from tests.errors import codes, raises
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


def lead(folder: Path, lead_to: Callable[[str], str], index: str = INDEX) -> None:
    content = json.loads((folder / INDEX).read_text())
    content["weight_map"] = {name: lead_to(file) for name, file in content["weight_map"].items()}
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


def test_weights_that_were_not_copied_to_the_end_are_named(tmp_path: Path) -> None:
    weights = make_tiny_model(tmp_path) / "model.safetensors"
    os.truncate(weights, weights.stat().st_size // 2)
    with raises(InputError, code="unreadable_file"):
        load_pretrained_text(tmp_path)


@pytest.mark.parametrize("load", [load_pretrained_text, by_trl], ids=["transformers", "trl"])
def test_weights_that_are_a_link_to_another_folder_are_refused(
    tmp_path: Path, load: Callable[[Path], object]
) -> None:
    theirs = make_tiny_model(tmp_path / "theirs")
    mine = tmp_path / "mine"
    shutil.copytree(theirs, mine)
    (mine / "model.safetensors").unlink()
    (mine / "model.safetensors").symlink_to(theirs / "model.safetensors")
    with pytest.raises(UnsafeModelError) as refused:
        load(mine)
    assert refused.value.code == "weights_outside"
    assert [finding.code for finding in check_model(mine).findings] == ["weights_outside"]


@pytest.mark.parametrize("load", [load_pretrained_text, by_trl, open_model], ids=["text", "trl", "engine"])
@pytest.mark.parametrize(
    "entry",
    [
        {"attn_implementation": "somebody/kernel"},
        {"text_config": {"attn_implementation": {"": "somebody/kernel:flash"}}},
        {"experts_implementation": "somebody/kernel"},
    ],
    ids=["attention", "part", "experts"],
)
def test_a_config_that_names_code_of_a_hub_is_refused(
    tmp_path: Path, entry: dict[str, Any], load: Callable[[Path], object]
) -> None:
    mine = make_tiny_model(tmp_path / "mine")
    config = json.loads((mine / "config.json").read_text())
    (mine / "config.json").write_text(json.dumps(config | entry))
    with pytest.raises(UnsafeModelError) as refused:
        load(mine)
    assert refused.value.code == "remote_code"
    assert [finding.code for finding in check_model(mine).findings] == ["remote_code"]


@pytest.mark.parametrize(
    "entry",
    [
        {"fast_tokenizer_files": ["../theirs/tokenizer.1.0.0.json"]},
        {"tokenizer_file": "THEIRS/tokenizer.1.0.0.json"},
        {"vocab_file": "THEIRS/tokenizer.1.0.0.json"},
        {"name_or_path": "THEIRS"},
        {"auto_map": {"AutoTokenizer": ["THEIRS--code.Tokenizer", None]}},
    ],
    ids=lambda entry: next(iter(entry)),
)
def test_a_tokenizer_config_leads_to_no_other_tokenizer(tmp_path: Path, entry: dict[str, Any]) -> None:
    mine = make_tiny_model(tmp_path / "mine")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    content = json.loads((mine / "tokenizer.json").read_text())
    secret = {"id": 5_000, "content": "<secret>", "special": True, "normalized": False}
    secret |= {"single_word": False, "lstrip": False, "rstrip": False}
    content["added_tokens"].append(secret)
    (theirs / "tokenizer.1.0.0.json").write_text(json.dumps(content))
    config = json.loads((mine / "tokenizer_config.json").read_text()) | entry
    (mine / "tokenizer_config.json").write_text(json.dumps(config).replace("THEIRS", str(theirs)))
    tokenizer = load_tokenizer(mine)
    assert "<secret>" not in tokenizer.get_vocab()
    assert tokenizer.eos_token in tokenizer.get_vocab()


@pytest.fixture
def adapter(sharded: Path, tmp_path: Path) -> Path:
    """An adapter whose file names somebody else's model."""
    return make_adapter(tmp_path / "adapter", sharded)


def rename_base(adapter: Path, base: Path) -> None:
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": str(base)}))


def test_the_base_that_an_adapters_file_names_is_not_loaded_whether_it_exists_or_not(
    adapter: Path, sharded: Path, tmp_path: Path
) -> None:
    sentences = []
    for named in (sharded, tmp_path / "gone"):
        rename_base(adapter, named)
        for load in (find_model, load_pretrained_text):
            with pytest.raises(BaseNeeded) as refused:
                load(adapter)
            sentences.append(str(refused.value).replace(str(named), ""))
    assert len(set(sentences)) == 1
    # Whoever names the base has it.
    assert ModelRegistry(find_model(adapter, sharded), ON_CPU).get("tuned") is not None


@pytest.mark.parametrize("load", [load_pretrained_text, by_trl], ids=["transformers", "trl"])
def test_an_adapter_config_inside_a_model_folder_leads_no_loader_to_another_model(
    sharded: Path, adapter: Path, tmp_path: Path, load: Callable[[Path], object]
) -> None:
    mixed = tmp_path / "mixed"
    shutil.copytree(sharded, mixed)
    shutil.copyfile(adapter / "adapter_config.json", mixed / "adapter_config.json")
    shutil.copyfile(adapter / "adapter_model.safetensors", mixed / "adapter_model.safetensors")
    with pytest.raises((BaseNeeded, UnsafeModelError)):
        load(mixed)
    with pytest.raises(UnsafeModelError):
        load_pretrained_text(adapter, base=mixed)
    assert [finding.code for finding in check_model(mixed).findings] == ["adapter_in_model"]


@pytest.mark.parametrize("content", ["[" * 200_000, "[]", "{"])
def test_an_adapter_config_that_is_no_object_is_refused(adapter: Path, content: str) -> None:
    (adapter / "adapter_config.json").write_text(content)
    with raises(InputError, code="not_an_adapter"):
        read_adapter(adapter)


@pytest.mark.parametrize("where", ["beside", "among checkpoints", "inside a checkpoint"])
def test_a_config_that_came_with_an_adapter_is_not_taken_for_its_run(
    adapter: Path, sharded: Path, tmp_path: Path, where: str
) -> None:
    fields = {"model": {"path": str(sharded)}, "method": "lora", "data": {"train_path": "/nowhere"}}
    config = TrainConfig.model_validate({"name": "x", "device": "cpu", **fields}).to_json()
    checkpoint = tmp_path / "run/checkpoints/step-00000001"
    asked = checkpoint
    if where == "beside":
        shutil.copytree(adapter, checkpoint)
        (checkpoint / "config.json").write_text(config)
    elif where == "among checkpoints":
        shutil.copytree(adapter, checkpoint)
        (checkpoint.parent / "config.json").write_text(config)
    else:
        shutil.copytree(adapter, checkpoint / "model")
        (checkpoint / "config.json").write_text(config)
    with pytest.raises(ValueError) as refused:
        find_model(asked)
    assert codes(refused.value) <= {"base_needed", "not_a_model_folder"}

"""Tensor files: what others read, what is refused and how."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch

from gpubloom.engine.shards.shard_files import (
    ShardFolder,
    Sharding,
    moment_stretches,
    shard,
    weight_stretches,
    write_shards,
)
from tests.engine.checkpoint.placements import LAYERS, make_executor, same, state_bytes, state_of, train
from tests.errors import raises

ADVICE = "delete the folder."
# A layer has 41 kB, its moments twice that.
LIMIT = 50_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A trained state in several shards."""
    executor = make_executor("resident")
    train(executor, 2)
    snapshot = executor.snapshot(state_bytes(executor))
    checksums = write_shards(tmp_path, snapshot, shardings())
    (tmp_path / "checksums.json").write_text(json.dumps(checksums))
    torch.save(state_of(executor), tmp_path / "expected.pt")
    return tmp_path


def shardings(limit: int = LIMIT) -> list[Sharding]:
    model = make_executor("resident").model
    return [
        shard(weight_stretches(model), "model", limit),
        shard(moment_stretches(model), "optimizer", limit),
    ]


def read(folder: Path) -> None:
    """Into another executor, which then has the state that was saved."""
    executor = make_executor("streamed")
    shards = ShardFolder(folder, json.loads((folder / "checksums.json").read_text()), ADVICE)
    for stem, stretches in (
        ("model", weight_stretches(executor.model)),
        ("optimizer", moment_stretches(executor.model)),
    ):
        shards.read(stem, stretches, lambda each: executor.stores[each.block].state[each.part])
    assert same(state_of(executor), torch.load(folder / "expected.pt"))


def test_shards_hold_whole_blocks_and_none_is_larger_than_it_must_be() -> None:
    weights, moments = shardings()
    assert [each.file for each in weights.shards] == [
        f"model-0000{number}-of-00005.safetensors" for number in range(1, LAYERS + 3)
    ]
    blocks = [{stretch.block for stretch in each.stretches} for each in moments.shards]
    assert blocks == [{block} for block in range(LAYERS + 2)]
    assert weights.index is not None
    assert weights.index["metadata"] == {"total_size": weights.total_bytes}
    assert moments.total_bytes == 2 * weights.total_bytes


def test_a_small_model_is_one_file_without_an_index() -> None:
    for each in shardings(limit=10_000_000):
        assert len(each.shards) == 1
        assert each.index is None
    assert shardings(10_000_000)[0].shards[0].file == "model.safetensors"


def test_safetensors_itself_reads_the_files_and_checksums_are_those_of_the_files(folder: Path) -> None:
    recorded = json.loads((folder / "checksums.json").read_text())
    names = set()
    for file in sorted(folder.glob("*.safetensors")):
        assert hashlib.sha256(file.read_bytes()).hexdigest() == recorded[file.name]
        with safetensors.safe_open(file, "pt") as opened:
            assert opened.metadata() == {"format": "pt"}
            names |= set(opened.keys())
        # Mapped into memory, tensors begin where any element may begin.
        assert int.from_bytes(file.read_bytes()[:8], "little") % 8 == 0
    expected = {each.name for sharding in shardings() for one in sharding.shards for each in one.stretches}
    assert names == expected


def test_what_was_written_is_read_back(folder: Path) -> None:
    read(folder)


def test_files_of_another_size_are_read_as_well(folder: Path) -> None:
    executor = make_executor("link")
    train(executor, 2)
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    snapshot = executor.snapshot(state_bytes(executor))
    checksums = write_shards(folder, snapshot, shardings(limit=100_000))
    (folder / "checksums.json").write_text(json.dumps(checksums))
    assert len(list(folder.glob("model-*"))) == 2
    read(folder)


def change_header(file: Path, change: Callable[[dict[str, dict[str, object]]], None]) -> None:
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])


def rename_norm(header: dict[str, dict[str, object]]) -> None:
    header["model.layers.7.input_layernorm.weight"] = header.pop("model.layers.1.input_layernorm.weight")


def drop_last(header: dict[str, dict[str, object]]) -> None:
    header.popitem()


def reshape_query(header: dict[str, dict[str, object]]) -> None:
    header["model.layers.1.self_attn.q_proj.weight"]["shape"] = [16, 64]


def halve_precision(header: dict[str, dict[str, object]]) -> None:
    header["model.layers.1.self_attn.q_proj.weight"]["dtype"] = "BF16"


def overlap(header: dict[str, dict[str, object]]) -> None:
    header["model.layers.1.self_attn.q_proj.weight"]["data_offsets"] = [4, 4100]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (rename_norm, "model.layers.7.input_layernorm.weight"),
        (drop_last, "model-00003-of-00005.safetensors"),
        (reshape_query, r"model.layers.1.self_attn.q_proj.weight.*\(16, 64\).*\(32, 32\)"),
        (halve_precision, "model.layers.1.self_attn.q_proj.weight.*BF16.*F32"),
        (overlap, "model.layers.1.self_attn.q_proj.weight"),
    ],
)  # fmt: skip
def test_a_header_that_does_not_fit_is_refused_before_anything_is_read(
    folder: Path, change: Callable[[dict[str, dict[str, object]]], None], name: str
) -> None:
    change_header(folder / "model-00003-of-00005.safetensors", change)
    with raises(ValueError, code="damaged_checkpoint", match=name) as refusal:
        read(folder)
    assert str(refusal.value).startswith(f"{folder} is damaged: ")
    assert str(refusal.value).endswith(f"; {ADVICE}")


@pytest.mark.parametrize("keep", [0, 5, 300, -1])
def test_a_file_that_was_cut_off_is_named(folder: Path, keep: int) -> None:
    file = folder / "optimizer-00002-of-00005.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with raises(
        ValueError,
        code="damaged_checkpoint",
        match="optimizer-00002-of-00005.safetensors",
    ):
        read(folder)


@pytest.mark.parametrize("offset", [20, -1])
def test_a_flipped_byte_is_found(folder: Path, offset: int) -> None:
    file = folder / "model-00001-of-00005.safetensors"
    content = bytearray(file.read_bytes())
    content[offset] ^= 1
    file.write_bytes(content)
    with raises(
        ValueError,
        code="damaged_checkpoint",
        match="model-00001-of-00005.safetensors",
    ):
        read(folder)


def test_a_shard_that_is_missing_is_named(folder: Path) -> None:
    (folder / "model-00004-of-00005.safetensors").unlink()
    with raises(
        ValueError,
        code="damaged_checkpoint",
        match="model-00004-of-00005.safetensors",
    ):
        read(folder)


def test_a_tensor_in_none_of_the_files_is_named(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    targets = json.loads(index.read_text())
    del targets["weight_map"]["lm_head.weight"], targets["weight_map"]["model.norm.weight"]
    index.write_text(json.dumps(targets))
    with raises(
        ValueError,
        code="damaged_checkpoint",
        match="(model.norm|lm_head).weight.*model-00001-of-00005",
    ):
        read(folder)


def test_an_index_that_leads_out_of_the_folder_is_refused(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("model-00004", "../../model-00004"))
    with raises(ValueError, code="damaged_checkpoint"):
        read(folder)


@pytest.mark.parametrize("text", ["", "[]", '{"weight_map": 3}', '{"weight_map": {"a": 3}}'])
def test_an_index_that_makes_no_sense_is_named(folder: Path, text: str) -> None:
    (folder / "model.safetensors.index.json").write_text(text)
    with raises(ValueError, code="damaged_checkpoint"):
        read(folder)

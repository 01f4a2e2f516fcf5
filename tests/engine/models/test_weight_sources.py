"""First weights: drawn as the family draws them, or read from a model folder tensor by tensor."""

import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from gpubloom.engine.models import weight_sources
from gpubloom.engine.models.blocks import BlockModel, WeightSource
from gpubloom.engine.models.hugging_face import HuggingFaceBlocks, open_model
from gpubloom.engine.models.transformer import LlamaBlocks
from gpubloom.engine.models.weight_sources import PretrainedWeights, RandomWeights
from gpubloom.plan import ModelShape
from tests.engine.models.families import FAMILIES, Chained, config_of, model_of, reference_of, some_tokens
from tests.errors import raises


def filled(
    model: BlockModel, source: WeightSource, precision: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """All tensors by their names in a model folder."""
    tensors = {}
    for block in model.blocks:
        own = {
            spec.name: torch.full(spec.shape, float("nan"), dtype=precision)
            for spec in (*block.trained, *block.frozen)
        }
        source.fill(block, own)
        for spec in (*block.trained, *block.frozen):
            tensors[model.parameter_name(block, spec)] = own[spec.name]
    return tensors


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    """A model folder as transformers writes it."""

    def save(name: str, shard: str = "50GB", **changes: Any) -> Path:
        reference_of(name, **changes).save_pretrained(tmp_path, max_shard_size=shard)
        return tmp_path

    return save


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    path = folder / "model.safetensors"
    safetensors.torch.save_file(change(safetensors.torch.load_file(path)), path, metadata={"format": "pt"})


@pytest.mark.parametrize("name", FAMILIES)
def test_random_weights_follow_the_rules_of_the_family(name: str) -> None:
    from transformers import AutoModelForCausalLM

    model = model_of(name)
    found = filled(model, RandomWeights(model, seed=3))
    torch.manual_seed(3)
    reference = AutoModelForCausalLM.from_config(config_of(name), dtype=torch.float32)
    for tensor, expected in reference.state_dict().items():
        if tensor not in found:  # a tied head's
            continue
        deviation = float(expected.std())
        if deviation == 0:
            assert torch.equal(found[tensor], expected), tensor
        else:
            # Both are samples of the same normal distribution.
            noise = 6 * deviation / expected.numel() ** 0.5
            assert abs(float(found[tensor].mean())) < noise, tensor
            assert abs(float(found[tensor].std()) - deviation) < noise, tensor


def test_random_weights_depend_on_the_seed_alone() -> None:
    model = model_of("gpt2")
    first = filled(model, RandomWeights(model, seed=3))
    torch.manual_seed(12345)
    before = torch.get_rng_state()
    again = filled(model, RandomWeights(model, seed=3))
    assert torch.equal(torch.get_rng_state(), before)
    other = filled(model, RandomWeights(model, seed=4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["transformer.wte.weight"], other["transformer.wte.weight"])
    layers = [first[f"transformer.h.{index}.attn.c_attn.weight"] for index in range(2)]
    assert not torch.equal(layers[0], layers[1])


@pytest.mark.parametrize("name", FAMILIES)
def test_a_folder_that_transformers_wrote_gives_the_same_logits(
    name: str, saved: Callable[..., Path]
) -> None:
    folder = saved(name)
    model = open_model(folder)
    tensors = filled(model, PretrainedWeights(folder, model))
    with torch.no_grad():
        expected = reference_of(name)(some_tokens()).logits
        found = Chained(model, tensors).logits(some_tokens())
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_shards_and_other_precisions_are_read(saved: Callable[..., Path]) -> None:
    folder = saved("qwen2", shard="20KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    model = open_model(folder)
    tensors = filled(model, PretrainedWeights(folder, model), torch.bfloat16)
    for name, expected in reference_of("qwen2").named_parameters():
        assert torch.equal(tensors[name], expected.bfloat16()), name


@pytest.mark.parametrize("name", ["gpt2", "llama-tied", "gpt_neox"])
def test_a_checkpoint_of_the_base_model_alone_is_read_when_the_head_is_tied(
    name: str, tmp_path: Path
) -> None:
    reference = reference_of(name, tie_word_embeddings=True)
    reference.base_model.save_pretrained(tmp_path)
    names = safetensors.torch.load_file(tmp_path / "model.safetensors").keys()
    assert not any(name.startswith(f"{reference.base_model_prefix}.") for name in names)
    model = HuggingFaceBlocks(config_of(name, tie_word_embeddings=True))
    tensors = filled(model, PretrainedWeights(tmp_path, model))
    for tensor, expected in reference.named_parameters():
        assert torch.equal(tensors[tensor], expected), tensor


def test_the_engines_own_llama_reads_a_folder_of_transformers(saved: Callable[..., Path]) -> None:
    folder = saved("llama")
    model = LlamaBlocks(
        ModelShape(
            vocab_size=97,
            hidden_size=32,
            layers=3,
            heads=4,
            kv_heads=2,
            ffn_size=48,
            context_length=64,
            tie_embeddings=False,
            rope_theta=10000.0,
            norm_eps=1e-6,
        )
    )
    tensors = filled(model, PretrainedWeights(folder, model))
    with torch.no_grad():
        expected = reference_of("llama")(some_tokens()).logits
        found = Chained(model, tensors).logits(some_tokens())
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_experts_are_read_one_by_one_or_fused(saved: Callable[..., Path]) -> None:
    folder = saved("mixtral")
    names = safetensors.torch.load_file(folder / "model.safetensors").keys()
    assert "model.layers.0.block_sparse_moe.experts.3.w2.weight" in names
    model = open_model(folder)
    reference = dict(reference_of("mixtral").named_parameters())
    separate = filled(model, PretrainedWeights(folder, model))
    rewrite(folder, lambda _: {name: tensor.detach() for name, tensor in reference.items()})
    fused = filled(model, PretrainedWeights(folder, model))
    for name, expected in reference.items():
        assert torch.equal(separate[name], expected), name
        assert torch.equal(fused[name], expected), name


def test_reading_holds_one_tensor_at_a_time(
    saved: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved("llama", shard="20KB")
    alive, most = 0, 0

    class Counting:
        def __init__(self, *arguments: Any, **by_name: Any) -> None:
            self._file = safetensors.safe_open(*arguments, **by_name)

        def get_tensor(self, name: str) -> Tensor:
            nonlocal alive, most
            tensor: Tensor = self._file.get_tensor(name)
            alive += 1
            most = max(most, alive)
            weakref.finalize(tensor, forget)
            return tensor

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

    def forget() -> None:
        nonlocal alive
        alive -= 1

    class Safetensors:
        SafetensorError = safetensors.SafetensorError
        safe_open = Counting

    monkeypatch.setattr(weight_sources, "safetensors", Safetensors)
    model = open_model(folder)
    tensors = filled(model, PretrainedWeights(folder, model))
    assert len(tensors) > 20
    assert most == 1


def test_a_missing_tensor_is_named_before_anything_is_read(saved: Callable[..., Path]) -> None:
    folder = saved("llama")
    model = open_model(folder)
    gone = "model.layers.1.mlp.up_proj.weight"
    rewrite(folder, lambda tensors: {name: tensor for name, tensor in tensors.items() if name != gone})
    with raises(ValueError, code="weights_mismatch", match=gone):
        PretrainedWeights(folder, model)


def test_a_tensor_of_another_size_is_named_with_its_file(saved: Callable[..., Path]) -> None:
    folder = saved("llama")
    model = open_model(folder)
    rewrite(folder, lambda tensors: {**tensors, "model.norm.weight": torch.zeros(31)})
    with raises(
        ValueError,
        code="weights_mismatch",
        match=r"model.norm.weight .*\(31,\)",
    ):
        filled(model, PretrainedWeights(folder, model))


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_quantized_tensors_are_refused(saved: Callable[..., Path], dtype: torch.dtype) -> None:
    folder = saved("llama")
    model = open_model(folder)
    rewrite(folder, lambda tensors: {**tensors, "model.norm.weight": torch.zeros(32).to(dtype)})
    with raises(
        ValueError,
        code="quantized_model",
        match=f"model.norm.weight .*{dtype}",
    ):
        filled(model, PretrainedWeights(folder, model))


def test_an_incomplete_or_missing_shard_is_named(saved: Callable[..., Path]) -> None:
    folder = saved("llama", shard="20KB")
    model = open_model(folder)
    shard = sorted(folder.glob("model-*.safetensors"))[1]
    content = shard.read_bytes()
    shard.write_bytes(content[: len(content) // 2])
    with raises(ValueError, code="unreadable_file", match=shard.name):
        filled(model, PretrainedWeights(folder, model))
    shard.unlink()
    with raises(
        ValueError,
        code="weights_mismatch",
        match=shard.name,
    ):
        PretrainedWeights(folder, model)


def test_an_index_that_names_the_wrong_shard_is_found_out(saved: Callable[..., Path]) -> None:
    folder = saved("llama", shard="20KB")
    model = open_model(folder)
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    weight_map = content["weight_map"]
    weight_map["model.norm.weight"] = next(
        file for file in weight_map.values() if file != weight_map["model.norm.weight"]
    )
    index.write_text(json.dumps(content))
    with raises(ValueError, code="weights_mismatch"):
        filled(model, PretrainedWeights(folder, model))


def test_a_folder_without_safetensors_says_what_to_do(tmp_path: Path) -> None:
    model = model_of("llama")
    with raises(ValueError, code="no_safetensors"):
        PretrainedWeights(tmp_path, model)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with raises(ValueError, code="no_safetensors"):
        PretrainedWeights(tmp_path, model)

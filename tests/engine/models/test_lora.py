"""LoRA: only adapters are trained, and what they compute is what PEFT computes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from gpubloom.engine.adapter_folder import read_adapter
from gpubloom.engine.models.lora import LoraBlocks, LoraSettings, LoraWeights, with_lora
from gpubloom.engine.models.transformer import LlamaBlocks, RandomLlama
from gpubloom.engine.models.weight_sources import PretrainedWeights, RandomWeights
from gpubloom.plan import ModelShape
from tests.engine.adapters import write_adapter
from tests.engine.models.families import (
    FAMILIES,
    LENGTH,
    Chained,
    model_of,
    reference_of,
    some_tokens,
)
from tests.engine.models.test_weight_sources import filled
from tests.errors import raises

ALL = LoraSettings(rank=4, alpha=6)
PEFT_FAMILIES = pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2", "falcon"])


def adapted(name: str, settings: LoraSettings = ALL) -> Chained:
    """A model whose base is transformers' and whose adapters change the outcome."""
    model = with_lora(model_of(name), settings)
    tensors = {name: tensor.detach() for name, tensor in reference_of(name).named_parameters()}
    generator = torch.Generator().manual_seed(5)
    for block in model.blocks:
        for spec in block.trained:
            tensors[model.parameter_name(block, spec)] = 0.2 * torch.randn(spec.shape, generator=generator)
    return Chained(model, tensors)


def adapters_of(chained: Chained) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in chained.tensors.items() if ".lora_" in name}


def in_peft(reference: Any, folder: Path) -> Any:
    from peft import PeftModel

    return PeftModel.from_pretrained(reference, folder).eval()


@pytest.mark.parametrize("name", FAMILIES)
def test_only_adapters_are_trained_and_new_ones_change_nothing(name: str) -> None:
    base = model_of(name)
    model = with_lora(base, ALL)
    assert all(
        spec.name.endswith(("lora_A.weight", "lora_B.weight"))
        for block in model.blocks
        for spec in block.trained
    )
    for block, plain in zip(model.blocks, base.blocks, strict=True):
        assert block.frozen == plain.trained
        assert (block.trained == ()) == (block.kind in ("embedding", "head"))
    with_adapters = filled(model, LoraWeights(model, RandomWeights(base, 3), seed=4))
    without = filled(base, RandomWeights(base, 3))
    with torch.no_grad():
        found = Chained(model, with_adapters).logits(some_tokens())
        assert torch.equal(found, Chained(base, without).logits(some_tokens()))
    for name_, tensor in with_adapters.items():
        if name_.endswith("lora_A.weight"):
            # Kaiming with a = √5 is uniform within 1/√inputs.
            bound = tensor.shape[1] ** -0.5
            assert 0.8 * bound < float(tensor.abs().max()) <= bound
        elif name_.endswith("lora_B.weight"):
            assert not tensor.any()


@PEFT_FAMILIES
def test_peft_loads_a_written_adapter_with_equal_logits(name: str, tmp_path: Path) -> None:
    chained = adapted(name)
    assert isinstance(chained.model, LoraBlocks)
    write_adapter(tmp_path, chained.model, adapters_of(chained), base_model="somewhere/base")
    with torch.no_grad():
        plain = reference_of(name)(some_tokens()).logits
        expected = in_peft(reference_of(name), tmp_path)(some_tokens()).logits
        found = chained.logits(some_tokens())
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert (found - plain).abs().max() > 0.1


@PEFT_FAMILIES
def test_an_adapter_of_peft_is_read_with_equal_logits(name: str, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    names = {"gpt2": ["c_attn", "mlp.c_proj"], "falcon": ["query_key_value", "dense"]}
    config = LoraConfig(
        r=3,
        lora_alpha=5,
        target_modules=names.get(name, ["q_proj", "v_proj", "down_proj"]),
        task_type="CAUSAL_LM",
        fan_in_fan_out=name == "gpt2",
    )
    peft = get_peft_model(reference_of(name), config).eval()
    with torch.no_grad():
        for parameter_name, parameter in peft.named_parameters():
            if "lora_" in parameter_name:
                parameter.normal_(0.0, 0.2)
        expected = peft(some_tokens()).logits
    peft.save_pretrained(tmp_path / "adapter")
    reference_of(name).save_pretrained(tmp_path / "base")
    adapter = read_adapter(tmp_path / "adapter")
    base = model_of(name)
    model = with_lora(base, adapter.settings)
    weights = LoraWeights(model, PretrainedWeights(tmp_path / "base", base), 0, adapter.tensors)
    with torch.no_grad():
        found = Chained(model, filled(model, weights)).logits(some_tokens())
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_an_adapter_is_read_as_it_was_written(tmp_path: Path) -> None:
    for settings in (ALL, LoraSettings(2, 1.5, ("q_proj", "mlp.down_proj"))):
        chained = adapted("llama", settings)
        assert isinstance(chained.model, LoraBlocks)
        write_adapter(tmp_path, chained.model, adapters_of(chained), base_model="base")
        adapter = read_adapter(tmp_path)
        assert with_lora(chained.model.base, adapter.settings).blocks == chained.model.blocks
        assert (adapter.settings.rank, adapter.settings.alpha) == (settings.rank, settings.alpha)
        assert adapter.base_model == "base"
        assert adapter.tensors.keys() == adapters_of(chained).keys()
        assert all(
            torch.equal(adapter.tensors[name], tensor) for name, tensor in adapters_of(chained).items()
        )


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2", "falcon", "phi3"])
def test_merged_weights_alone_compute_the_same(name: str) -> None:
    chained = adapted(name)
    model = chained.model
    assert isinstance(model, LoraBlocks)
    merged = {}
    for index, block in enumerate(model.blocks):
        merged.update(model.merged(block, chained.weights(index)))
    assert merged.keys() == dict(reference_of(name).named_parameters()).keys()
    with torch.no_grad():
        found = Chained(model.base, merged).logits(some_tokens())
        torch.testing.assert_close(found, chained.logits(some_tokens()), rtol=1e-4, atol=1e-4)


def test_merging_into_bf16_rounds_once() -> None:
    chained = adapted("llama")
    model = chained.model
    assert isinstance(model, LoraBlocks)
    weights = chained.weights(1)
    path = "mlp.up_proj"
    weights[f"{path}.weight"] = weights[f"{path}.weight"].bfloat16()
    found = dict(model.merged(model.blocks[1], weights))[f"model.layers.0.{path}.weight"]
    change = 1.5 * (weights[f"{path}.lora_B.weight"] @ weights[f"{path}.lora_A.weight"])
    assert torch.equal(found, (weights[f"{path}.weight"].float() + change).bfloat16())


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_backward_pass_of_adapters_can_be_traced_and_compiled(name: str) -> None:
    chained = adapted(name)
    model = chained.model
    block = model.blocks[1]
    weights = chained.weights(1)
    trained = [weights[spec.name] for spec in block.trained]
    frozen = [weights[spec.name] for spec in block.frozen]
    names = [spec.name for spec in (*block.trained, *block.frozen)]
    tables = model.tables(some_tokens(), None)
    generator = torch.Generator().manual_seed(2)
    x_BTD, grad_BTD = (torch.randn(2, LENGTH, 32, generator=generator) for _ in range(2))

    def layer(trained: Any, frozen: Any, x_BTD: Tensor, tables: Any) -> Tensor:
        return model.layer(block.kind, dict(zip(names, (*trained, *frozen), strict=True)), x_BTD, tables)

    def backward(
        trained: Any, frozen: Any, x_BTD: Tensor, tables: Any, grad_BTD: Tensor
    ) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            inputs = [tensor.detach().requires_grad_() for tensor in (x_BTD, *trained)]
            y_BTD = layer(inputs[1:], frozen, inputs[0], tables)
        return torch.autograd.grad(y_BTD, inputs, grad_BTD)

    arguments = (trained, frozen, x_BTD, tables)
    with torch.no_grad():
        graph = make_fx(backward, tracing_mode="fake")(*arguments, grad_BTD)
        compiled = torch.compile(layer, fullgraph=True, dynamic=False, backend="aot_eager")
        torch.testing.assert_close(compiled(*arguments), layer(*arguments), rtol=1e-5, atol=1e-5)
    for found, wanted in zip(graph(*arguments, grad_BTD), backward(*arguments, grad_BTD), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_the_engines_own_llama_is_adapted_too() -> None:
    shape = ModelShape(
        vocab_size=97, hidden_size=32, layers=2, heads=4, kv_heads=2, ffn_size=48, context_length=64
    )
    base = LlamaBlocks(shape)
    model = with_lora(base, LoraSettings(2, 4, ("q_proj",)))
    tensors = filled(model, LoraWeights(model, RandomLlama(shape, 1), seed=2))
    assert "model.layers.1.self_attn.q_proj.lora_A.weight" in tensors
    before = Chained(model, tensors).logits(some_tokens())
    torch.testing.assert_close(before, Chained(base, tensors).logits(some_tokens()))
    tensors["model.layers.1.self_attn.q_proj.lora_B.weight"].fill_(1.0)
    assert not torch.allclose(before, Chained(model, tensors).logits(some_tokens()))


def test_targets_are_ends_of_module_paths() -> None:
    model = with_lora(model_of("gpt2"), LoraSettings(2, 2, ("mlp.c_proj",)))
    assert model.targets == ("mlp.c_proj",)
    assert [spec.name for spec in model.blocks[1].trained] == [
        "mlp.c_proj.lora_A.weight",
        "mlp.c_proj.lora_B.weight",
    ]
    assert [spec.shape for spec in model.blocks[1].trained] == [(2, 128), (32, 2)]


def test_settings_that_name_nothing_are_refused() -> None:
    base = model_of("gpt2")
    with raises(
        ValueError,
        code="unknown_lora_target",
        match="q_proj .* c_attn, c_fc",
    ):
        with_lora(base, LoraSettings(2, 2, ("q_proj",)))
    with raises(ValueError, code="invalid_lora"):
        LoraSettings(0, 2)
    with raises(ValueError, code="invalid_lora"):
        LoraSettings(2, 2, ())


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"peft_type": "IA3"}, "unsupported_adapter"),
        ({"use_dora": True}, "unsupported_adapter"),
        ({"use_rslora": True}, "unsupported_adapter"),
        ({"modules_to_save": ["lm_head"]}, "unsupported_adapter"),
        ({"rank_pattern": {"q_proj": 8}}, "unsupported_adapter"),
        ({"target_modules": ".*_proj"}, "adapter_invalid"),
    ],
)
def test_adapters_of_other_kinds_are_refused(change: dict[str, Any], code: str, tmp_path: Path) -> None:
    chained = adapted("llama")
    assert isinstance(chained.model, LoraBlocks)
    write_adapter(tmp_path, chained.model, adapters_of(chained))
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with raises(ValueError, code=code):
        read_adapter(tmp_path)


def test_an_adapter_of_another_model_is_refused() -> None:
    chained = adapted("llama")
    assert isinstance(chained.model, LoraBlocks)
    tensors = adapters_of(chained)
    source = RandomWeights(model_of("llama"), 0)
    name = "model.layers.2.mlp.up_proj.lora_B.weight"
    with raises(ValueError, code="adapter_mismatch", match=name):
        LoraWeights(chained.model, source, 0, {key: value for key, value in tensors.items() if key != name})
    with raises(ValueError, code="adapter_mismatch", match=rf"{name} .*\(1, 4\) .*\(48, 4\)"):
        LoraWeights(chained.model, source, 0, {**tensors, name: torch.zeros(1, 4)})

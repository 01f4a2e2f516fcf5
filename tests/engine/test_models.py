"""TransformerLM and its export: the same numbers in transformers, and nothing looks into the future."""

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch

from gpubloom.engine.data import Tokenizer
from gpubloom.engine.llama_folder import (
    hugging_face_config,
    hugging_face_name,
    load_model,
    read_shape,
)
from gpubloom.engine.models import TransformerLM
from gpubloom.engine.models.transformer import LlamaBlocks, RandomLlama
from gpubloom.plan import ModelShape, TokenizerConfig

TIED = ModelShape(
    vocab_size=257,
    hidden_size=64,
    layers=3,
    heads=4,
    kv_heads=2,
    ffn_size=96,
    context_length=48,
    rope_theta=5e4,
)
UNTIED = ModelShape(
    vocab_size=257,
    hidden_size=64,
    layers=2,
    heads=4,
    kv_heads=4,
    ffn_size=96,
    context_length=48,
    tie_embeddings=False,
)


def exported(folder: Path, shape: ModelShape) -> TransformerLM:
    model = TransformerLM.create(shape, seed=3)
    with torch.no_grad():
        # Norms that are all ones would hide a swapped or missing one.
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(len(name)))
    weights = {hugging_face_name(name): parameter.detach() for name, parameter in model.named_parameters()}
    tokenizer = Tokenizer.create(TokenizerConfig(), ())
    settings = hugging_face_config(shape, tokenizer.end_of_text)
    (folder / "config.json").write_text(json.dumps(settings))
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(folder, shape.context_length)
    return model


@pytest.mark.parametrize("shape", [TIED, UNTIED], ids=["tied", "untied"])
def test_the_export_gives_the_same_logits_in_transformers(tmp_path: Path, shape: ModelShape) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    model = exported(tmp_path, shape)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert isinstance(theirs, LlamaForCausalLM)
    tokens_BT = torch.randint(0, 257, (3, 48), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        difference = (theirs(tokens_BT).logits - model(tokens_BT)).abs().max()
    assert difference < 1e-5
    assert sum(parameter.numel() for parameter in theirs.parameters()) == shape.parameters

    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    text = "def größe(x):\n    return '你好 🎉'  # two  spaces"
    assert tokenizer(text)["input_ids"] == list(text.encode("utf-8"))
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.eos_token_id == 256


@pytest.mark.parametrize("shape", [TIED, UNTIED], ids=["tied", "untied"])
def test_an_export_loads_back_unchanged(tmp_path: Path, shape: ModelShape) -> None:
    model = exported(tmp_path, shape)
    assert read_shape(tmp_path) == shape
    again, _ = load_model(tmp_path)
    for name, parameter in again.named_parameters():
        assert torch.equal(parameter, model.get_parameter(name)), name


def test_the_parameter_count_of_the_plan_is_the_model_s() -> None:
    for shape in (TIED, UNTIED):
        model = TransformerLM.create(shape, seed=0)
        assert sum(parameter.numel() for parameter in model.parameters()) == shape.parameters


def test_the_public_model_learns_in_a_loop_of_ones_own() -> None:
    """As docs/engine.md shows it: an ordinary torch module."""
    from gpubloom import engine
    from gpubloom.plan import PRESETS

    assert {"Dataset", "Model", "Trainer", "TransformerLM"} <= set(engine.__all__)
    model = engine.TransformerLM.create(PRESETS["nano"], seed=0)
    tokens_BT = torch.arange(32).view(2, 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(10):
        logits_BTV = model(tokens_BT[:, :-1])
        assert logits_BTV.shape == (2, 15, PRESETS["nano"].vocab_size)
        loss = torch.nn.functional.cross_entropy(logits_BTV.flatten(0, 1), tokens_BT[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_a_position_sees_only_what_came_before() -> None:
    model = TransformerLM.create(TIED, seed=0)
    tokens_BT = torch.arange(20).view(1, 20)
    changed_BT = tokens_BT.clone()
    changed_BT[0, 12:] = 200
    with torch.no_grad():
        before_BTV, after_BTV = model(tokens_BT), model(changed_BT)
    assert torch.equal(before_BTV[:, :12], after_BTV[:, :12])
    assert not torch.equal(before_BTV[:, 12], after_BTV[:, 12])


def test_weights_depend_on_the_seed_and_not_on_the_global_generator() -> None:
    torch.manual_seed(1)
    first = TransformerLM.create(TIED, seed=5)
    torch.manual_seed(2)
    second = TransformerLM.create(TIED, seed=5)
    other = TransformerLM.create(TIED, seed=6)
    assert torch.equal(first.embedding.weight, second.embedding.weight)
    assert not torch.equal(first.embedding.weight, other.embedding.weight)


def test_blocks_are_embedding_layers_head_in_order() -> None:
    names = [name for name, _ in TransformerLM.create(TIED, seed=0).blocks()]
    assert names == ["embedding", "layers.0", "layers.1", "layers.2", "head"]


def test_blocks_are_filled_with_the_weights_of_the_module_as_often_as_asked() -> None:
    blocks, source = LlamaBlocks(UNTIED), RandomLlama(UNTIED, seed=5)
    expected = {
        hugging_face_name(name): parameter.detach()
        for name, parameter in TransformerLM.create(UNTIED, seed=5).named_parameters()
    }
    for _ in range(2):
        found = {}
        for block in blocks.blocks:
            tensors = {tensor.name: torch.empty(tensor.shape) for tensor in block.trained}
            source.fill(block, tensors)
            found |= {blocks.parameter_name(block, tensor): tensors[tensor.name] for tensor in block.trained}
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in found)

"""One set of weights, two models: what each computes, also at the same time; and what is found on disk."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from gpubloom.engine.decoding.sampling import GREEDY, Sampling
from gpubloom.engine.generate import generate_tokens
from gpubloom.engine.models.hugging_face.structure import find_layers
from gpubloom.engine.nf4 import dequantize, quantize
from gpubloom.engine.pretrained_text import (
    ON_CPU,
    PackedLinear,
    PretrainedText,
    load_pretrained_text,
    to_four_bit,
)
from gpubloom.engine.serving import model_registry as registry_module
from gpubloom.engine.serving.model_registry import ModelRegistry, NotEnoughMemory, count_weights
from gpubloom.engine.serving.resolved_model import find_model
from tests.engine.runs import Run
from tests.errors import raises
from tests.tiny_models import make_tiny_model

TOKENS = torch.arange(3, 43)[None]


def reference_logits(folder: Path, adapter: Path | None = None) -> torch.Tensor:
    """What transformers, and PEFT where there is an adapter, compute."""
    import peft
    import transformers

    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if adapter is not None:
        model = peft.PeftModel.from_pretrained(model, str(adapter))
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=TOKENS).logits
    return logits


def logits_of(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(TOKENS, model.new_cache())
    return found


def test_another_checkpoint_answers_under_a_name_of_its_own_once_it_is_asked_for(
    base: Path, adapter: Path
) -> None:
    registry = ModelRegistry(find_model(adapter, base), ON_CPU, other=find_model(base))
    assert (registry.names, registry.default) == (("base", "tuned", "other"), "tuned")
    assert registry.facts()["loaded"] == ["base", "tuned"]
    assert torch.allclose(logits_of(registry.get("other")), reference_logits(base), atol=1e-5)
    assert torch.allclose(logits_of(registry.get("tuned")), reference_logits(base, adapter), atol=1e-5)


def test_base_and_tuned_are_what_transformers_and_peft_compute_from_one_set_of_weights(
    registry: ModelRegistry, base: Path, adapter: Path
) -> None:
    assert registry.names == ("base", "tuned")
    assert torch.allclose(logits_of(registry.get("base")), reference_logits(base), atol=1e-5)
    assert torch.allclose(logits_of(registry.get("tuned")), reference_logits(base, adapter), atol=1e-5)
    first = [parameter.data_ptr() for parameter in registry.get("base").parameters()]
    assert first == [parameter.data_ptr() for parameter in registry.get("tuned").parameters()]


def test_both_voices_can_be_asked_at_the_same_time(registry: ModelRegistry) -> None:
    alone = {name: logits_of(registry.get(name)) for name in registry.names}
    with ThreadPoolExecutor(4) as pool:
        names = ["base", "tuned"] * 20
        for name, logits in zip(
            names, pool.map(lambda name: logits_of(registry.get(name)), names), strict=True
        ):
            assert torch.equal(logits, alone[name])


def test_an_answer_that_is_interleaved_with_another_is_the_one_it_would_be_alone(
    registry: ModelRegistry,
) -> None:
    def answer(name: str) -> Any:
        return generate_tokens(
            registry.get(name), [5, 6, 7], Sampling(0.7, None, 0.9, seed=3), max_tokens=12, ends=frozenset()
        )

    alone = {name: list(answer(name)) for name in registry.names}
    pairs = list(zip(answer("base"), answer("tuned"), strict=True))
    assert [first for first, _ in pairs] == alone["base"]
    assert [second for _, second in pairs] == alone["tuned"]
    assert alone["base"] != alone["tuned"]


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
def test_a_prompt_read_in_pieces_gives_the_logits_of_one_read_at_once(
    tmp_path: Path, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_pretrained_text(make_tiny_model(tmp_path / family, family=family))
    whole = list(generate_tokens(model, range(3, 43), GREEDY, max_tokens=8, ends=frozenset()))
    monkeypatch.setattr("gpubloom.engine.generate._PIECE", 7)
    assert list(generate_tokens(model, range(3, 43), GREEDY, max_tokens=8, ends=frozenset())) == whole
    cache = model.new_cache()
    with torch.no_grad():
        pieces = [model(TOKENS[:, start : start + 7], cache) for start in range(0, 40, 7)]
    assert torch.allclose(torch.cat(pieces, dim=1), logits_of(model), atol=1e-5)


def test_a_full_fine_tune_loads_its_base_when_it_is_asked_for_and_says_when_there_is_no_room(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_tiny_model(tmp_path / "tuned", seed=1)
    registry = ModelRegistry(find_model(other, base), ON_CPU)
    assert registry.facts()["loaded"] == ["tuned"]
    monkeypatch.setattr(registry_module, "free_host_bytes", lambda: 100_000_000)
    with raises(
        NotEnoughMemory,
        code="not_enough_memory",
        match=r"0\.1 GB .*base .*0\.3 GB",
    ):
        registry.get("base")
    monkeypatch.undo()
    assert torch.allclose(logits_of(registry.get("base")), reference_logits(base), atol=1e-5)
    assert torch.allclose(logits_of(registry.get("tuned")), reference_logits(other), atol=1e-5)
    assert registry.facts()["loaded"] == ["base", "tuned"]


def test_a_model_without_a_base_is_one_voice(base: Path) -> None:
    registry = ModelRegistry(find_model(base), ON_CPU)
    assert registry.names == ("model",)
    assert count_weights(base) == sum(parameter.numel() for parameter in registry.get("model").parameters())


def test_a_preset_of_our_own_is_one_voice(make_run: Callable[..., Run]) -> None:
    run = make_run(max_steps=1)
    run.train()
    (run.folder / "config.json").write_text(run.config.to_json())
    registry = ModelRegistry(find_model(run.folder), ON_CPU)
    assert (registry.names, registry.context_length) == (("model",), 32)
    assert not isinstance(registry.get("model"), PretrainedText)


def run_around(folder: Path, adapter: Path, base: Path, make_config: Any, **fields: Any) -> Path:
    """A run directory whose final model is the given adapter."""
    shutil.copytree(adapter, folder / "model")
    config = make_config(model={"path": str(base)}, **fields)
    (folder / "config.json").write_text(config.to_json())
    return folder


def test_an_adapter_of_qlora_gets_the_base_in_four_bits_as_it_was_trained(
    tmp_path: Path, adapter: Path, base: Path, make_config: Any
) -> None:
    import transformers

    found = find_model(run_around(tmp_path / "run", adapter, base, make_config, method="qlora"))
    registry = ModelRegistry(found, ON_CPU)
    assert "from 4-bit" in str(registry.facts()["weights"])
    expected: Any = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    with torch.no_grad():
        for layer in expected.get_submodule(find_layers(expected)):
            for parameter in layer.parameters():
                if parameter.ndim > 1:
                    parameter.copy_(dequantize(quantize(parameter)))
        assert torch.allclose(logits_of(registry.get("base")), expected(input_ids=TOKENS).logits, atol=1e-5)
    assert not torch.allclose(logits_of(registry.get("base")), reference_logits(base), atol=1e-3)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_four_bits_that_stay_packed_compute_what_decoded_ones_do(tmp_path: Path, family: str) -> None:
    import transformers

    folder = make_tiny_model(tmp_path / family, family=family)

    def logits(*, packed: bool) -> torch.Tensor:
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        to_four_bit(model, torch.device("cpu"), torch.float32, packed=packed)
        assert any(isinstance(module, PackedLinear) for module in model.modules()) is packed
        return logits_of(PretrainedText(model))

    assert torch.allclose(logits(packed=True), logits(packed=False), atol=1e-5)


def test_a_base_that_is_gone_is_named_and_another_place_of_it_can_be_given(
    tmp_path: Path, adapter: Path, base: Path, make_config: Any
) -> None:
    lost = run_around(tmp_path / "run", adapter, tmp_path / "gone", make_config)
    with raises(ValueError, code="model_not_found", match=str(tmp_path / "gone")):
        find_model(lost)
    assert find_model(lost, base).base == base
    with raises(ValueError, code="model_not_found"):
        find_model(lost, tmp_path / "nowhere")


def test_a_full_fine_tune_whose_base_is_gone_can_still_be_asked(
    tmp_path: Path, base: Path, make_config: Any
) -> None:
    run = tmp_path / "run"
    shutil.copytree(base, run / "model")
    (run / "config.json").write_text(make_config(model={"path": str(tmp_path / "gone")}).to_json())
    found = find_model(run)
    assert found.base is None
    assert "cannot be compared with it" in found.notes[0]


def test_an_adapter_of_another_model_is_refused(tmp_path: Path, adapter: Path) -> None:
    larger = make_tiny_model(tmp_path / "larger", hidden_size=96)
    with raises(ValueError, code="adapter_mismatch"):
        ModelRegistry(find_model(adapter, larger), ON_CPU)

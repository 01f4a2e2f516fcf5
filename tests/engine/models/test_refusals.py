"""A model that the engine cannot train is refused in one sentence that names what stands in the way."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpubloom.engine.models.hugging_face import HuggingFaceBlocks, open_model
from gpubloom.engine.transformers_loading import load_causal_model
from tests.engine.models.families import config_of
from tests.errors import raises
from tests.tiny_models import make_tiny_model


def _config(family: str, **settings: Any) -> Any:
    from transformers import AutoConfig

    return AutoConfig.for_model(family, **settings)


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("t5", "encoder"),
        ("qwen2_vl", "images"),
        ("mamba", "attention"),
        ("bloom", "attention"),
        ("jamba", "attention"),
        ("qwen3_next", "attention"),
        ("llama4_text", "window"),
        ("gemma3n_text", "model.per_layer_model_projection.weight"),
        ("gpt_oss", "s_aux"),
        ("deepseek_v3", "mlp.gate.e_score_correction_bias"),
        ("opt", "embeds"),
        ("bert", "bert"),
        ("vit", "vit"),
    ],
)
def test_what_is_no_plain_decoder_is_refused(family: str, name: str) -> None:
    with raises(ValueError, code="unsupported_architecture", match=name) as refusal:
        HuggingFaceBlocks(_config(family))
    assert "\n" not in str(refusal.value)


def test_falcon_with_alibi_is_refused_by_the_name_of_what_it_gives_its_layers() -> None:
    with raises(ValueError, code="unsupported_architecture"):
        HuggingFaceBlocks(config_of("falcon", alibi=True))


def test_a_padding_token_beyond_the_vocabulary_is_refused(tmp_path: Path) -> None:
    with raises(ValueError, code="model_config_invalid", match="Padding_idx"):
        HuggingFaceBlocks(config_of("llama", pad_token_id=97))
    folder = make_tiny_model(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "pad_token_id": config["vocab_size"]}))
    with raises(ValueError, code="model_config_invalid", match="Padding_idx"):
        load_causal_model(folder)


def test_attention_to_later_positions_is_refused() -> None:
    with raises(ValueError, code="unsupported_architecture"):
        HuggingFaceBlocks(config_of("gemma3", use_bidirectional_attention=True))


def test_a_model_that_changes_hidden_states_between_layers_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from transformers.models.llama import modeling_llama

    plain = modeling_llama.LlamaModel.forward

    def forward(self: Any, *arguments: Any, **by_name: Any) -> Any:
        second = self.layers[1]
        called = second.forward
        second.forward = lambda x, *more, **others: called(2 * x, *more, **others)
        return plain(self, *arguments, **by_name)

    monkeypatch.setattr(modeling_llama.LlamaModel, "forward", forward)
    with raises(ValueError, code="unsupported_architecture", match="layers 0 and 1"):
        HuggingFaceBlocks(config_of("llama"))


def test_a_model_that_scales_its_logits_in_an_unknown_way_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.llama import modeling_llama

    plain = modeling_llama.LlamaForCausalLM.forward

    def forward(self: Any, *arguments: Any, **by_name: Any) -> Any:
        out = plain(self, *arguments, **by_name)
        out.logits = out.logits * 1.01
        return out

    monkeypatch.setattr(modeling_llama.LlamaForCausalLM, "forward", forward)
    with raises(ValueError, code="unsupported_architecture"):
        HuggingFaceBlocks(config_of("llama"))


def test_a_quantized_model_is_refused() -> None:
    with raises(ValueError, code="quantized_model"):
        HuggingFaceBlocks(config_of("llama", quantization_config={"quant_method": "bitsandbytes"}))


def test_the_callers_config_is_left_as_it_was() -> None:
    config = config_of("gemma2")
    before = config.to_dict()
    HuggingFaceBlocks(config)
    assert config.to_dict() == before


def test_a_folder_is_opened_by_its_config(tmp_path: Path) -> None:
    config_of("qwen3").save_pretrained(tmp_path)
    opened = open_model(tmp_path)
    assert opened.blocks == HuggingFaceBlocks(config_of("qwen3")).blocks
    assert open_model(json.loads((tmp_path / "config.json").read_text())).blocks == opened.blocks


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with raises(ValueError, code="not_a_model_folder"):
        open_model(tmp_path)
    for content in ("[1]", '{"a": ' * 100_000):
        (tmp_path / "config.json").write_text(content)
        with raises(ValueError, code="not_a_model_folder"):
            open_model(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with raises(ValueError, code="model_config_invalid"):
        open_model(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "hal9000"}')
    with raises(ValueError, code="unsupported_architecture", match="hal9000"):
        open_model(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama", "hidden_size": "many"}')
    with raises(ValueError, code="unsupported_architecture"):
        open_model(tmp_path)


@pytest.mark.long
def test_importing_the_models_does_not_load_transformers() -> None:
    modules = "gpubloom.engine, gpubloom.engine.models.hugging_face, gpubloom.engine.adapter_folder"
    program = f"import sys, {modules}; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

"""GGUF files: the gguf package reads them, the tensors are the model's, the metadata says what it is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import safetensors.torch
import torch

from gpubloom.engine.exporting.gguf import GgufTokenizer, gguf_tensors, read_back
from gpubloom.engine.exporting.layouts import ExportWeights, merged_config, write_merged
from gpubloom.engine.serving.resolved_model import find_model
from tests.engine.exporting.conftest import Make
from tests.engine.exporting.tasks import export
from tests.errors import printed
from tests.tiny_models import CHATML

PROMPTS = ("What is the password?",)


def merged_tensors(run: Path, folder: Path) -> dict[str, torch.Tensor]:
    folder.mkdir()
    write_merged(folder, find_model(run), "fp32")
    return safetensors.torch.load_file(folder / "model.safetensors")


def pairs_of_neighbours(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """llama.cpp's order of rows, written out row by row."""
    size = weight.shape[0] // heads
    order = [
        head * size + half * size // 2 + index
        for head in range(heads)
        for index in range(size // 2)
        for half in (0, 1)
    ]
    return weight[order]


@pytest.mark.long
@pytest.mark.parametrize(
    "family", ["llama", "mistral", pytest.param("qwen2", marks=pytest.mark.long), "qwen3"]
)
def test_a_gguf_file_holds_the_merged_tensors_and_answers_as_before(
    tiny: Make, adapter_of: Callable[..., Path], tmp_path: Path, family: str
) -> None:
    run = adapter_of(tiny(family))
    result = export(tmp_path / "task", model=str(run), form="gguf", dtype="fp32", prompts=PROMPTS)
    file = tmp_path / "task" / "model" / "model.gguf"
    expected = merged_tensors(run, tmp_path / "merged")

    held = {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}
    assert len(held) == len(expected)
    query = expected["model.layers.1.self_attn.q_proj.weight"].numpy()
    if family in {"llama", "mistral"}:
        query = pairs_of_neighbours(query, heads=4)
    assert np.array_equal(held["blk.1.attn_q.weight"].data, query)
    down = expected["model.layers.0.mlp.down_proj.weight"].numpy()
    assert np.array_equal(held["blk.0.ffn_down.weight"].data, down)

    found = find_model(run)
    planned = gguf_tensors(ExportWeights.of(found), merged_config(found, "fp32"))
    back = dict(read_back(file, planned))
    assert back.keys() == expected.keys()
    assert all(torch.equal(back[name], expected[name]) for name in expected)
    assert result["same"] == result["of"] == 1
    assert result["largest_logit_difference"] < 1e-4
    # Of these, only Mistral's configuration limits how far back a token sees.
    assert [note for note in result["notes"] if "sliding window" in note] == result["notes"]
    assert bool(result["notes"]) == (family == "mistral")


@pytest.mark.long
def test_the_metadata_and_the_tokenizer_are_those_of_the_model(tiny: Make, tmp_path: Path) -> None:
    model = tiny("llama")
    export(tmp_path / "task", model=str(model), form="gguf", dtype="fp16", prompts=PROMPTS, name="My answers")
    fields = gguf.GGUFReader(tmp_path / "task" / "model" / "model.gguf").fields
    told = {name: field.contents() for name, field in fields.items()}
    config = json.loads((model / "config.json").read_text())
    assert told["general.architecture"] == "llama"
    assert told["general.name"] == "My answers"
    assert told["general.file_type"] == 1
    assert told["llama.block_count"] == 2
    assert told["llama.embedding_length"] == 64
    assert told["llama.attention.head_count_kv"] == 2
    assert told["llama.context_length"] == 512
    assert told["llama.rope.dimension_count"] == 16
    assert told["llama.attention.layer_norm_rms_epsilon"] == pytest.approx(config["rms_norm_eps"])
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokens = told["tokenizer.ggml.tokens"]
    assert {text: tokens.index(text) for text in tokenizer["model"]["vocab"]} == tokenizer["model"]["vocab"]
    assert len(tokens) == config["vocab_size"]
    assert len(told["tokenizer.ggml.merges"]) == len(tokenizer["model"]["merges"])
    assert told["tokenizer.ggml.model"] == "gpt2"
    assert told["tokenizer.ggml.pre"] == "gpt-2"
    assert told["tokenizer.ggml.eos_token_id"] == config["eos_token_id"]
    assert told["tokenizer.ggml.token_type"][config["eos_token_id"]] == 3
    assert told["tokenizer.ggml.add_bos_token"] is False
    assert told["tokenizer.chat_template"] == CHATML


@pytest.mark.long
def test_transformers_reads_the_file_as_the_model_it_was(
    tiny: Make, adapter_of: Callable[..., Path], tmp_path: Path
) -> None:
    """A second reader, which puts the rows back by itself."""
    import transformers

    run = adapter_of(tiny("llama"))
    export(tmp_path / "task", model=str(run), form="gguf", dtype="fp32", prompts=PROMPTS)
    merged = tmp_path / "merged"
    merged_tensors(run, merged)
    load = transformers.AutoModelForCausalLM.from_pretrained
    tokens = torch.arange(3, 40)[None]
    with torch.no_grad():
        ours = load(tmp_path / "task" / "model", gguf_file="model.gguf")(input_ids=tokens).logits
        expected = load(merged)(input_ids=tokens).logits
    assert torch.allclose(ours, expected, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize(
    ("dtype", "kind"), [("bf16", torch.bfloat16), pytest.param("fp16", torch.float16, marks=pytest.mark.long)]
)
def test_matrices_are_rounded_and_norms_stay_exact(
    tiny: Make, tmp_path: Path, dtype: str, kind: torch.dtype
) -> None:
    model = tiny("qwen2")
    export(tmp_path / "task", model=str(model), form="gguf", dtype=dtype, prompts=PROMPTS)
    found = find_model(model)
    planned = gguf_tensors(ExportWeights.of(found), merged_config(found, "fp32"))
    for name, values in read_back(tmp_path / "task" / "model" / "model.gguf", planned):
        expected = safetensors.torch.load_file(model / "model.safetensors")[name].float()
        assert torch.equal(values, expected if expected.ndim == 1 else expected.to(kind).float()), name


def test_llama_3_frequencies_are_scaled_as_transformers_scales_them(tiny: Make) -> None:
    from transformers import AutoConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    from gpubloom.engine.exporting.gguf import _divisors

    rope = {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8_192,
    }
    config = json.loads((tiny("llama") / "config.json").read_text())
    config |= {"head_dim": 128, "rope_parameters": rope, "max_position_embeddings": 131_072}
    divisors = _divisors(config)
    assert divisors is not None
    frequencies, _ = ROPE_INIT_FUNCTIONS["llama3"](AutoConfig.for_model(**config), torch.device("cpu"))
    plain = 500_000.0 ** (-np.arange(0, 128, 2) / 128)
    assert np.allclose(plain / divisors, frequencies.numpy(), rtol=1e-5)


def test_scores_put_merges_in_the_order_of_sentencepiece(tmp_path: Path) -> None:
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2, "<0x0A>": 3, "▁": 4, "a": 5, "b": 6, "ab": 7, "▁ab": 8}
    content = {
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "unk_token": "<unk>",
            "vocab": vocabulary,
            "merges": [["a", "b"], ["▁", "ab"]],
        },
        "added_tokens": [
            *({"id": n, "content": t, "special": True} for t, n in list(vocabulary.items())[:3]),
            # The model does not know it, as Gemma's do not know the one for images.
            {"id": 10, "content": "<image>", "special": True},
        ],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}]},
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
        },
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<s>", "eos_token": {"content": "</s>"}})
    )
    files = {path.name: path for path in tmp_path.iterdir()}
    read = GgufTokenizer.read(tmp_path / "tokenizer.json", 10, files)
    assert read.model == "llama"
    assert read.kinds == [2, 3, 3, 6, 1, 1, 1, 1, 1, 5]
    assert read.scores is not None
    assert read.scores[7] > read.scores[8] > read.scores[5]
    assert read.special == {"bos": 1, "eos": 2}
    assert read.adds == {"bos": True, "eos": False}
    assert read.space_prefix
    assert read.tokens[9] == "[PAD9]"


def test_a_family_that_is_not_written_here_says_what_is(
    tiny: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BLOOM_GGUF_CONVERTER", raising=False)
    with pytest.raises(SystemExit):
        export(tmp_path / "task", model=str(tiny("phi3")), form="gguf")
    said = capsys.readouterr().err
    assert printed(said) == ["unsupported_by_gguf"]
    assert "phi3" in said
    assert not (tmp_path / "task" / "model").exists()


def test_rules_that_llama_cpp_does_not_know_are_refused_rather_than_guessed(
    tmp_path: Path, tiny: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    monkeypatch.delenv("BLOOM_GGUF_CONVERTER", raising=False)
    model = Path(shutil.copytree(tiny("llama"), tmp_path / "odd"))
    content = json.loads((model / "tokenizer.json").read_text())
    content["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "x+"}, "behavior": "Isolated", "invert": False},
            content["pre_tokenizer"] | {"use_regex": False},
        ],
    }
    (model / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(SystemExit):
        export(tmp_path / "task", model=str(model), form="gguf")
    assert "uses a pre-tokenizer that GPU Bloom's GGUF export does not support" in capsys.readouterr().err


CONVERTER = """
import argparse, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--outfile")
parser.add_argument("--outtype")
parser.add_argument("--model-name")
options = parser.parse_args()
weights = (pathlib.Path(options.model) / "model.safetensors").stat().st_size
pathlib.Path(options.outfile).write_text(f"{options.outtype} {options.model_name} {weights}")
"""


def test_another_converter_is_used_where_the_operator_names_one(
    tiny: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "convert.py"
    script.write_text(CONVERTER)
    monkeypatch.setenv("BLOOM_GGUF_CONVERTER", str(script))
    result = export(tmp_path / "task", model=str(tiny("phi3")), form="gguf", dtype="fp16", name="Phi")
    assert [file["path"] for file in result["files"]] == ["model.gguf"]
    assert (tmp_path / "task" / "model" / "model.gguf").read_text().startswith("f16 Phi ")
    assert (result["replay"], result["of"]) == ([], 0)
    assert any("were not compared" in note for note in result["notes"])

    script.write_text("import sys; sys.exit('no such architecture')")
    with pytest.raises(SystemExit):
        export(tmp_path / "again", model=str(tiny("phi3")), form="gguf")
    assert "no such architecture" in capsys.readouterr().err

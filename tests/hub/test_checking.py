"""The check before training: a good model passes, each kind of broken one is named."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpubloom.hub.checking import check_model
from tests.tiny_models import make_tiny_model

Copy = Callable[[], Path]


def codes(folder: Path, severity: str | None = None) -> set[str]:
    return {finding.code for finding in check_model(folder).findings if severity in (None, finding.severity)}


def change(file: Path, **fields: Any) -> None:
    """Sets fields of a JSON file; None removes one."""
    content = json.loads(file.read_text())
    for name, value in fields.items():
        if value is None:
            content.pop(name, None)
        else:
            content[name] = value
    file.write_text(json.dumps(content))


def shards(folder: Path) -> Path:
    """The same weights in several files with an index."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    model.save_pretrained(folder, max_shard_size="100KB")
    (folder / "model.safetensors").unlink(missing_ok=True)
    return folder


def header(file: Path) -> dict[str, Any]:
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        return dict(json.loads(stream.read(length)))


def test_a_whole_model_has_no_finding_and_its_sizes_are_told(tiny_model: Path) -> None:
    report = check_model(tiny_model)
    assert report.findings == ()
    assert report.ok
    assert report.chat_template
    assert report.family == "llama"
    assert report.context_length == 512
    weights = header(tiny_model / "model.safetensors")
    values = sum(
        tensor["data_offsets"][1] - tensor["data_offsets"][0]
        for name, tensor in weights.items()
        if name != "__metadata__"
    )
    assert report.parameters == values // 4
    assert report.bytes == sum(file.stat().st_size for file in tiny_model.iterdir())
    assert report.memory is not None
    assert report.memory["qlora"] < report.memory["full"]
    assert json.loads(json.dumps(report.to_json()))["ok"] is True


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "mistral", "gemma3_text", "phi3", "gpt_neox", "gpt2"])
def test_a_whole_model_of_another_family_passes_too(tmp_path: Path, family: str) -> None:
    assert codes(make_tiny_model(tmp_path / family, family=family), "error") == set()


def test_weights_in_several_files_pass(model_copy: Copy) -> None:
    folder = shards(model_copy())
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    assert codes(folder) == set()


def break_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def break_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\xff" * 4_096)


def cut_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1_000])


def cut_header(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:100])


def keep_pickles_only(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def drop_a_tensor(folder: Path) -> None:
    import safetensors.torch

    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    tensors.pop("model.layers.1.mlp.down_proj.weight")
    safetensors.torch.save_file(tensors, folder / "model.safetensors")


def drop_a_norm(folder: Path) -> None:
    import safetensors.torch

    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    tensors.pop("model.norm.weight")
    safetensors.torch.save_file(tensors, folder / "model.safetensors")


def quantize(folder: Path) -> None:
    import safetensors.torch
    import torch

    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    tensors[name] = tensors[name].to(torch.int8)
    safetensors.torch.save_file(tensors, folder / "model.safetensors")


def lose_a_shard(folder: Path) -> None:
    sorted(shards(folder).glob("model-*.safetensors"))[1].unlink()


def break_index(folder: Path) -> None:
    (shards(folder) / "model.safetensors.index.json").write_text("[]")


def index_names_too_much(folder: Path) -> None:
    index = shards(folder) / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.more.weight"] = next(iter(content["weight_map"].values()))
    index.write_text(json.dumps(content))


def other_tokenizer(folder: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"]["one more"] = 9_999
    (folder / "tokenizer.json").write_text(json.dumps(content))


def token_for_images(folder: Path) -> None:
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.add_tokens(["<image>"])
    backend.save(str(folder / "tokenizer.json"))


def adapter_only(folder: Path) -> None:
    (folder / "config.json").rename(folder / "adapter_config.json")


BROKEN: dict[str, Callable[[Path], Any]] = {
    "config_missing": lambda folder: (folder / "config.json").unlink(),
    "config_unreadable": break_config,
    "config_incomplete": lambda folder: change(folder / "config.json", hidden_size=None),
    "adapter_only": adapter_only,
    "architecture_unknown": lambda folder: change(folder / "config.json", model_type="t5"),
    "remote_code": lambda folder: change(
        folder / "config.json", model_type="mystery", auto_map={"AutoModel": "modeling.Mystery"}
    ),
    "quantized": lambda folder: change(
        folder / "config.json", quantization_config={"quant_method": "gptq", "bits": 4}
    ),
    "weights_missing": lambda folder: (folder / "model.safetensors").unlink(),
    "only_pickles": keep_pickles_only,
    "file_damaged": break_header,
    "file_truncated": cut_weights,
    "shard_missing": lose_a_shard,
    "index_unreadable": break_index,
    "tensor_missing": drop_a_tensor,
    "tensor_shape": lambda folder: change(folder / "config.json", intermediate_size=96),
    "weights_incomplete": drop_a_norm,
    "tokenizer_missing": lambda folder: (folder / "tokenizer.json").unlink(),
    "tokenizer_unreadable": lambda folder: (folder / "tokenizer.json").write_text("{}"),
    "vocabulary_mismatch": other_tokenizer,
    "chat_template_broken": lambda folder: (folder / "chat_template.jinja").write_text("{% for"),
    "eos_unknown": lambda folder: change(folder / "tokenizer_config.json", eos_token="<end>"),
    "special_token_beyond": lambda folder: change(folder / "config.json", pad_token_id=9_999),
}
DOUBTFUL: dict[str, Callable[[Path], Any]] = {
    "chat_template_missing": lambda folder: (folder / "chat_template.jinja").unlink(),
    "template_without_end": lambda folder: (folder / "chat_template.jinja").write_text(
        "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    ),
    "added_tokens_unknown": token_for_images,
    "eos_differs": lambda folder: (
        change(folder / "config.json", eos_token_id=0),
        change(folder / "generation_config.json", eos_token_id=0),
    ),
    "remote_code": lambda folder: change(folder / "config.json", auto_map={"AutoModel": "modeling.Mine"}),
    "pad_unknown": lambda folder: change(folder / "tokenizer_config.json", pad_token="<pad>"),
}


@pytest.mark.parametrize("code", BROKEN)
def test_each_kind_of_broken_model_is_named_in_a_sentence(model_copy: Copy, code: str) -> None:
    folder = model_copy()
    BROKEN[code](folder)
    report = check_model(folder)
    assert not report.ok
    (finding,) = [finding for finding in report.findings if finding.code == code]
    assert finding.severity == "error"
    assert finding.sentence.endswith(".")


@pytest.mark.parametrize(
    ("damage", "code"),
    [(cut_header, "file_truncated"), (index_names_too_much, "tensor_missing"), (quantize, "quantized")],
)
def test_the_same_faults_are_seen_in_other_places(
    model_copy: Copy, damage: Callable[[Path], None], code: str
) -> None:
    folder = model_copy()
    damage(folder)
    assert code in codes(folder, "error")


@pytest.mark.parametrize("code", DOUBTFUL)
def test_what_only_needs_attention_is_a_warning(model_copy: Copy, code: str) -> None:
    folder = model_copy()
    DOUBTFUL[code](folder)
    report = check_model(folder)
    assert report.ok
    assert [finding.code for finding in report.findings] == [code]


def test_a_turn_may_end_with_a_special_token_of_its_own(model_copy: Copy) -> None:
    """As Gemma's turns end with <end_of_turn> and its texts with <eos>."""
    folder = model_copy()
    change(folder / "tokenizer_config.json", eos_token="<|endoftext|>")
    for file in ("config.json", "generation_config.json"):
        change(folder / file, eos_token_id=0)
    assert codes(folder) == set()


@pytest.mark.parametrize(
    "tensor",
    [
        {"dtype": "F32", "shape": [float("inf")], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, float("inf")]},
        {"dtype": "NEW", "shape": [10**4_000, 10**4_000], "data_offsets": [0, 4]},
        {"dtype": "NEW", "shape": [2] * 20_000, "data_offsets": [0, 4]},
    ],
)
def test_tensors_of_impossible_sizes_are_a_finding(model_copy: Copy, tensor: dict[str, Any]) -> None:
    folder = model_copy()
    text = json.dumps({"model.embed_tokens.weight": tensor}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
    assert "file_damaged" in codes(folder, "error")


@pytest.mark.parametrize(
    "name", ["vocab_size", "hidden_size", "intermediate_size", "max_position_embeddings"]
)
@pytest.mark.parametrize("value", [[1], "x", 10**30, -1])
def test_sizes_that_no_model_has_are_a_finding(model_copy: Copy, name: str, value: Any) -> None:
    folder = model_copy()
    change(folder / "config.json", **{name: value})
    assert "config_incomplete" in codes(folder, "error")


def test_a_folder_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    assert codes(tmp_path / "nowhere") == {"folder_missing"}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("config.json", "config_unreadable"),
        ("tokenizer.json", "tokenizer_unreadable"),
        ("tokenizer_config.json", "chat_template_broken"),
        ("generation_config.json", None),
    ],
)
def test_no_nesting_of_a_file_makes_the_check_raise(model_copy: Copy, name: str, code: str | None) -> None:
    folder = model_copy()
    (folder / name).write_text("[" * 200_000)
    found = codes(folder)
    assert code is None or code in found

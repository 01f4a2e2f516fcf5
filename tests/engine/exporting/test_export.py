"""Exports others can read, that answer as before, whole or absent."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gpubloom.engine.exporting.layouts import write_merged
from gpubloom.engine.llama_folder import CONFIG_FILE
from gpubloom.engine.pretrained_text import ON_CPU
from gpubloom.engine.serving.answers import Answer, Wanted
from gpubloom.engine.serving.model_registry import ModelRegistry
from gpubloom.engine.serving.prompt_formatter import PromptFormatter
from gpubloom.engine.serving.resolved_model import find_model
from tests.engine.exporting.conftest import Make
from tests.engine.exporting.tasks import export, write_task
from tests.errors import printed

PROMPTS = ("What is the password?", "Say something about the sea.")
TOKENS = torch.arange(3, 40)[None]


def transformers_answer(folder: Path, prompt: str, **options: Any) -> str:
    """As anybody would ask the model with transformers alone."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, **options)
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    out = model.generate(**inputs, max_new_tokens=48, do_sample=False)
    ids = out[0, inputs["input_ids"].shape[1] :].tolist()
    # Random models write half characters; both sides put them together in the same way.
    formatter = PromptFormatter.of(find_model(folder))
    return "".join(formatter.tokenizer.decode_stream(token for token in ids if token not in formatter.ends))


def served_answer(path: Path, prompt: str) -> str:
    """As the playground answers."""
    found = find_model(path)
    registry, formatter = ModelRegistry(found, ON_CPU), PromptFormatter.of(found)
    tokens = formatter.chat([{"role": "user", "content": prompt}])
    return "".join(Answer(registry.get(registry.default), formatter, tokens, Wanted(48)))


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=TOKENS).logits
    return found


@pytest.mark.long
@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_a_merged_export_answers_in_transformers_as_the_playground_did(
    tiny: Make, adapter_of: Callable[..., Path], tmp_path: Path, family: str
) -> None:
    run = adapter_of(tiny(family))
    before = [served_answer(run, prompt) for prompt in PROMPTS]
    result = export(tmp_path / "task", model=str(run), form="merged", dtype="fp32", prompts=PROMPTS)

    folder = tmp_path / "task" / "model"
    assert [transformers_answer(folder, prompt) for prompt in PROMPTS] == before
    assert before != [served_answer(tiny(family), prompt) for prompt in PROMPTS], (
        "the adapter changed nothing"
    )
    assert [(row["before"], row["after"]) for row in result["replay"]] == [(text, text) for text in before]
    assert (result["same"], result["of"]) == (2, 2)
    assert result["largest_logit_difference"] < 1e-4
    assert result["hub"] is None
    assert (folder / "chat_template.jinja").read_bytes() == (
        tiny(family) / "chat_template.jinja"
    ).read_bytes()
    for file in result["files"]:
        content = (folder / file["path"]).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file["size"], file["sha256"])
    assert {file["path"] for file in result["files"]} == {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(("dtype", "name"), [("bf16", "bfloat16"), ("fp16", "float16")])
def test_an_export_is_rounded_once_to_the_type_asked_for(
    tiny: Make, adapter_of: Callable[..., Path], tmp_path: Path, dtype: str, name: str
) -> None:
    import safetensors.torch

    run = adapter_of(tiny("llama"))
    exact, rounded = tmp_path / "exact", tmp_path / "rounded"
    for folder in (exact, rounded):
        folder.mkdir()
    write_merged(exact, find_model(run), "fp32")
    write_merged(rounded, find_model(run), dtype)  # type: ignore[arg-type]
    kind = getattr(torch, name)
    expected = safetensors.torch.load_file(exact / "model.safetensors")
    found = safetensors.torch.load_file(rounded / "model.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[each], expected[each].to(kind)) for each in expected)
    assert json.loads((rounded / CONFIG_FILE).read_text())["dtype"] == name


def test_a_full_fine_tune_is_written_in_shards_that_transformers_reads(tiny: Make, tmp_path: Path) -> None:
    import transformers

    folder = tmp_path / "out"
    folder.mkdir()
    write_merged(folder, find_model(tiny("llama")), "fp32", shard_bytes=100_000)
    assert len(list(folder.glob("model-*.safetensors"))) > 3
    load = transformers.AutoModelForCausalLM.from_pretrained
    assert torch.equal(logits(load(folder)), logits(load(tiny("llama"))))


@pytest.mark.long
def test_peft_loads_an_adapter_export(tiny: Make, adapter_of: Callable[..., Path], tmp_path: Path) -> None:
    import peft
    import transformers

    base = tiny("llama")
    run = adapter_of(base)
    result = export(tmp_path / "task", model=str(run), form="adapter", dtype="fp32", prompts=PROMPTS)
    folder = tmp_path / "task" / "model"
    merged = tmp_path / "merged"
    merged.mkdir()
    write_merged(merged, find_model(run), "fp32")

    load = transformers.AutoModelForCausalLM.from_pretrained
    with_adapter = peft.PeftModel.from_pretrained(load(base), str(folder))
    assert torch.allclose(logits(with_adapter), logits(load(merged)), atol=1e-4)
    assert result["same"] == result["of"] == 2
    assert {"tokenizer.json", "chat_template.jinja"} <= {file["path"] for file in result["files"]}
    assert "from a folder on this machine" in result["notes"][0]
    named = json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert named == base.name


@pytest.mark.long
def test_an_adapter_on_a_model_of_the_hub_names_its_base_by_id(
    tiny: Make, adapter_of: Callable[..., Path], tmp_path: Path
) -> None:
    commit = "0123456789" * 4
    base = Path(shutil.copytree(tiny("llama"), tmp_path / "hub" / "models" / "org--tiny" / commit))
    result = export(tmp_path / "task", model=str(adapter_of(base)), form="adapter")
    settings = json.loads((tmp_path / "task" / "model" / "adapter_config.json").read_text())
    assert (settings["base_model_name_or_path"], settings["revision"]) == ("org/tiny", commit)
    assert result["notes"] == []


@pytest.mark.long
def test_a_qlora_adapter_is_merged_into_the_unquantized_base_and_the_difference_is_told(
    tiny: Make, adapter_of: Callable[..., Path], tmp_path: Path
) -> None:
    lora, qlora = adapter_of(tiny("llama")), adapter_of(tiny("llama"), "qlora")
    plain = export(tmp_path / "a", model=str(lora), dtype="fp32", prompts=PROMPTS)
    result = export(tmp_path / "b", model=str(qlora), dtype="fp32", prompts=PROMPTS)
    assert (tmp_path / "a/model/model.safetensors").read_bytes() == (
        tmp_path / "b/model/model.safetensors"
    ).read_bytes()
    assert "4-bit weights" in result["notes"][0]
    assert result["largest_logit_difference"] > 100 * plain["largest_logit_difference"]


@pytest.mark.long
def test_prompts_come_from_the_data_that_was_trained_on(
    tiny: Make, adapter_of: Callable[..., Path], tmp_path: Path
) -> None:
    run = adapter_of(tiny("llama"))
    data = tmp_path / "data.jsonl"
    data.write_text(
        "".join(json.dumps({"prompt": f"Question {n}?", "completion": "Yes."}) + "\n" for n in range(9))
    )
    config = json.loads((run / "config.json").read_text())
    config["data"] |= {"kind": "examples", "train_path": str(data)}
    (run / "config.json").write_text(json.dumps(config))
    result = export(tmp_path / "task", model=str(run))
    assert [row["prompt"] for row in result["replay"]] == ["Question 0?", "Question 1?", "Question 2?"]


def test_a_full_model_has_no_adapter_to_export(
    tiny: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        export(tmp_path / "task", model=str(tiny("llama")), form="adapter")
    assert ended.value.code == 2
    assert printed(capsys.readouterr().err) == ["no_adapter"]
    assert not (tmp_path / "task" / "model").exists()


def test_a_stop_leaves_nothing_half(tiny: Make, tmp_path: Path) -> None:
    from gpubloom.traincard import ControlFile

    home = write_task(tmp_path / "task", model=str(tiny("llama")))
    ControlFile(home).want("cancel")
    from gpubloom.engine.tasks import run_task

    run_task(home)
    assert not (home / "result.json").exists()
    assert not [path.name for path in home.iterdir() if "model" in path.name]


@pytest.mark.long
def test_exporting_again_replaces_what_an_earlier_attempt_left(tiny: Make, tmp_path: Path) -> None:
    (tmp_path / "task" / "model").mkdir(parents=True)
    (tmp_path / "task" / "model" / "old").write_text("x")
    export(tmp_path / "task", model=str(tiny("llama")), dtype="fp32")
    assert not (tmp_path / "task" / "model" / "old").exists()


def test_a_token_left_for_the_task_is_taken_and_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpubloom.engine.tasks.export import take_token

    monkeypatch.setenv("HF_TOKEN", "hf_of_the_environment")
    assert take_token(tmp_path) == "hf_of_the_environment"
    (tmp_path / "hub-token").write_text("hf_of_a_person\n")
    assert take_token(tmp_path) == "hf_of_a_person"
    assert not (tmp_path / "hub-token").exists()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Use 'content=")
def test_a_pushed_export_names_its_place_and_the_token_is_nowhere(
    tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants

    from tests.hub.fake_hub import TOKEN, running_hub

    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
        home = write_task(tmp_path / "task", model=str(tiny("llama")), hub={"repository": "me/tiny"})
        (home / "hub-token").write_text(TOKEN)
        result = export(home, model=str(tiny("llama")), hub={"repository": "me/tiny"})
        repo = hub.repos["model", "me/tiny"]
        assert result["hub"] == {
            "repository": "me/tiny",
            "url": f"{hub.url}/me/tiny",
            "revision": repo.revision(),
        }
        pushed = {name: hashlib.sha256(content).hexdigest() for name, content in repo.files.items()}
    assert pushed == {file["path"]: file["sha256"] for file in result["files"]}
    everything = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
    assert TOKEN.encode() not in everything

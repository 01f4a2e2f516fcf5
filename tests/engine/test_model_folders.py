"""A model folder from end to end: trained, resumed, exported and sampled, with its own tokenizer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers

from gpubloom.engine.data import Tokenizer
from gpubloom.engine.pretrained_text import load_pretrained_text
from gpubloom.engine.sample import main
from gpubloom.engine.serving.prompt_formatter import PromptFormatter
from gpubloom.engine.serving.resolved_model import find_model
from gpubloom.errors import InputError
from gpubloom.plan import TokenizerConfig
from tests.engine.conftest import sample_text
from tests.engine.runs import Run
from tests.errors import raises


def make_folder(folder: Path, model_type: str) -> Path:
    """A tiny model of some family, with a tokenizer of its own, as transformers saves it."""
    import transformers

    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["</s>"], initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([sample_text()], trainer)
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>").save_pretrained(folder)
    config = transformers.AutoConfig.for_model(
        model_type,
        vocab_size=backend.get_vocab_size(),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=0,
    )
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("model_type", ["qwen2", "llama", "gpt2"])
@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
def test_a_model_folder_is_trained_resumed_exported_and_sampled(
    make_run: Callable[..., Run],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    model_type: str,
    method: str,
) -> None:
    folder = make_folder(tmp_path / "base", model_type)
    run = make_run(
        method=method, max_steps=4, learning_rate=1e-2, model={"path": str(folder), "context_length": 16}
    )
    run.train(stop_at=2)
    run.train(resume=True)
    # As every run has it; an adapter's base is what its run says.
    (run.folder / "config.json").write_text(run.config.to_json())
    capsys.readouterr()

    main([str(run.folder), "The quick", "--max-tokens", "8", "--temperature", "0"])

    assert capsys.readouterr().out.startswith("The quick")
    assert find_model(run.folder).folder == run.folder / "model"
    exported = Tokenizer.load(run.folder / "model" / "tokenizer.json")
    assert list(exported.encode("The quick")) == list(
        Tokenizer.load(folder / "tokenizer.json").encode("The quick")
    )
    assert exported.end_of_text == 0
    base = folder if method != "full" else None
    expected = logits_of(run.folder / "model", base)
    ours = load_pretrained_text(run.folder / "model", base=base)
    with torch.no_grad():
        assert torch.allclose(ours(TOKENS, ours.new_cache()), expected, atol=1e-5)


TOKENS = torch.arange(1, 13)[None]


def logits_of(folder: Path, base: Path | None) -> torch.Tensor:
    """What transformers, and PEFT where there is a base, compute with an exported folder."""
    import peft
    import transformers

    model: Any = transformers.AutoModelForCausalLM.from_pretrained(base or folder, dtype=torch.float32)
    if base is not None:
        model = peft.PeftModel.from_pretrained(model, str(folder))
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=TOKENS).logits
    return found


def test_an_adapter_whose_base_is_gone_says_which_folder_is_missing(
    make_run: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_folder(tmp_path / "base", "qwen2")
    run = make_run(method="lora", max_steps=1, model={"path": str(folder), "context_length": 16})
    run.train()
    (run.folder / "config.json").write_text(run.config.to_json())
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(SystemExit) as ended:
        main([str(run.folder), "x"])
    assert ended.value.code == 2
    assert f"The folder {folder} of the base model does not exist" in capsys.readouterr().err


def test_streamed_words_keep_their_spaces_where_a_space_belongs_to_the_word_after_it(tmp_path: Path) -> None:
    backend = Backend(models.BPE(vocab={"\u2581": 0, "a": 1, "b": 2, "\u2581a": 3}, merges=[("\u2581", "a")]))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    backend.save(str(tmp_path / "tokenizer.json"))
    config = TokenizerConfig(kind="file", path=str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.create(config, ())
    assert "".join(tokenizer.decode_stream([3, 2, 3, 3])) == "ab a a"


def add_token(folder: Path, token: str) -> None:
    """One more token in the tokenizer than the model has embeddings for, as Gemma's have one for images."""
    backend = Backend.from_file(str(folder / "tokenizer.json"))
    backend.add_tokens([token])
    backend.save(str(folder / "tokenizer.json"))


def test_a_token_that_the_model_does_not_know_harms_only_data_and_prompts_that_contain_it(
    make_run: Callable[..., Run], tmp_path: Path
) -> None:
    folder = make_folder(tmp_path / "base", "llama")
    add_token(folder, "<image>")
    run = make_run(max_steps=2, model={"path": str(folder), "context_length": 16})
    run.train()
    prompts = PromptFormatter.of(find_model(run.folder / "model"))
    assert prompts.completion("The quick") == list(prompts.tokenizer.encode("The quick"))
    with raises(InputError, code="unknown_token", match="<image>"):
        prompts.completion("The <image> quick")

    text = Path(run.config.data.train_path)
    text.write_text(text.read_text() + "The <image> quick\n")
    with raises(InputError, code="tokenizer_mismatch", match="<image>"):
        run.train()


def test_a_tokenizer_of_another_model_is_refused(make_run: Callable[..., Run], tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "base", "llama")
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"]["elsewhere"] = 5_000
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with raises(InputError, code="tokenizer_mismatch", match="5,001"):
        make_run(max_steps=1, model={"path": str(folder), "context_length": 16}).train()

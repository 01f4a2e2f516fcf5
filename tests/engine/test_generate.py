"""Text from a model: repeatable, streamed, stopped at the end of a text, found in a run."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gpubloom.engine.data import Tokenizer
from gpubloom.engine.generate import generate
from gpubloom.engine.llama_folder import load_model
from gpubloom.engine.models import TransformerLM
from gpubloom.engine.sample import main
from gpubloom.engine.serving.resolved_model import find_model
from gpubloom.plan import PRESETS, TokenizerConfig
from tests.engine.runs import Run
from tests.errors import printed

BYTES = Tokenizer.create(TokenizerConfig(), ())


def test_the_same_seed_gives_the_same_text_and_another_seed_another() -> None:
    model = TransformerLM.create(PRESETS["nano"], seed=0)

    def text(seed: int) -> str:
        return "".join(generate(model, BYTES, "a", max_tokens=30, seed=seed, temperature=1.0, top_k=None))

    assert text(1) == text(1)
    assert text(1) != text(2)


def test_temperature_zero_follows_the_likeliest_token_past_the_context_length() -> None:
    model = TransformerLM.create(PRESETS["nano"], seed=0)
    pieces = list(generate(model, BYTES, "x" * 60, max_tokens=80, temperature=0.0))
    seen, first = list(b"x" * 60), 0
    for _ in range(80):
        with torch.no_grad():
            seen.append(int(model(torch.tensor([seen[first:]]))[0, -1].argmax()))
        if len(seen) - first > 64:
            first = len(seen) - 32
    assert "".join(pieces) == BYTES.decode(seen[60:])


def test_remembered_positions_give_the_logits_of_a_whole_pass() -> None:
    model = TransformerLM.create(PRESETS["nano"], seed=0)
    tokens_BT = torch.randint(0, 257, (2, 20), generator=torch.Generator().manual_seed(1))
    cache = model.new_cache()
    with torch.no_grad():
        pieces = [model(tokens_BT[:, :12], cache)]
        pieces += [model(tokens_BT[:, position : position + 1], cache) for position in range(12, 20)]
        assert torch.allclose(torch.cat(pieces, dim=1), model(tokens_BT), atol=1e-5)


def test_end_of_text_ends_it() -> None:
    model = TransformerLM.create(PRESETS["nano"], seed=0)
    with torch.no_grad():
        # Every hidden state now points at the end-of-text token most.
        model.head.norm.weight.zero_()
    model.head.register_forward_hook(
        lambda _module, _inputs, logits: logits.index_fill(-1, torch.tensor([256]), 9.0)
    )
    assert list(generate(model, BYTES, "anything", max_tokens=50)) == []


def test_a_run_is_sampled_from_its_checkpoint_first_and_its_model_later(make_run: Callable[..., Run]) -> None:
    run = make_run(max_steps=6)
    run.train(stop_at=3)
    (run.folder / "config.json").write_text(run.config.to_json())
    assert find_model(run.folder).folder.name == "step-00000003"
    run.train(resume=True)
    assert find_model(run.folder).folder == run.folder / "model"
    model, tokenizer = load_model(find_model(run.folder).folder)
    assert (model.shape.layers, tokenizer.vocab_size) == (2, 257)


def test_sample_streams_the_prompt_and_its_continuation(
    make_run: Callable[..., Run], capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(epochs=3, learning_rate=5e-3)
    run.train()
    main([str(run.folder), "The quick", "--max-tokens", "30", "--temperature", "0"])
    assert capsys.readouterr().out.startswith("The quick brown fox")


def test_what_cannot_be_sampled_is_refused_in_one_sentence(
    tmp_path: Path, make_run: Callable[..., Run], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path), "x"])
    assert ended.value.code == 2
    assert printed(capsys.readouterr().err) == ["not_a_model_folder"]
    run = make_run()
    run.folder.mkdir()
    (run.folder / "config.json").write_text(run.config.to_json())
    with pytest.raises(SystemExit):
        main([str(run.folder), "x"])
    assert printed(capsys.readouterr().err) == ["no_checkpoint"]

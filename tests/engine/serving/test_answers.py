"""Where an answer begins and ends: tokens, stop texts, characters of several tokens, templates."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gpubloom.datasets import ChatTemplate
from gpubloom.engine.decoding.sampling import Sampling
from gpubloom.engine.generate import generate_tokens
from gpubloom.engine.serving.answers import Answer, Wanted
from gpubloom.engine.serving.prompt_formatter import PromptFormatter
from gpubloom.engine.serving.resolved_model import find_model
from tests.engine.runs import Run
from tests.engine.serving.speakers import Scripted
from tests.errors import raises
from tests.tiny_models import make_tiny_model


def say(formatter: PromptFormatter, text: str, **wanted: Any) -> Answer:
    """A model that says a text and ends."""
    script = [int(token) for token in formatter.tokenizer.encode(text)]
    model = Scripted(script, formatter.tokenizer.vocab_size, end=min(formatter.ends))
    return Answer(model, formatter, [5], Wanted(**{"max_tokens": 200} | wanted))


def test_every_token_is_a_piece_of_its_own(formatter: PromptFormatter) -> None:
    answer = say(formatter, "The password is kept.")
    pieces = list(answer)
    assert "".join(pieces) == "The password is kept."
    assert len(pieces) == answer.tokens > 3
    assert answer.finish_reason == "stop"


def test_a_character_of_several_tokens_arrives_whole(formatter: PromptFormatter) -> None:
    text = "a🦜b é 👩‍🚀 漢字."
    pieces = list(say(formatter, text))
    assert "".join(pieces) == text
    assert "🦜" in pieces
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)


def test_bytes_that_never_become_a_character_are_not_held_for_ever(formatter: PromptFormatter) -> None:
    half = [int(token) for token in formatter.tokenizer.encode("🦜")][:2]
    character = [int(token) for token in formatter.tokenizer.encode("x")]
    model = Scripted(half + character * 3, formatter.tokenizer.vocab_size, end=min(formatter.ends))
    assert "".join(Answer(model, formatter, [5], Wanted(max_tokens=50))).endswith("xxx")


def test_an_answer_ends_before_a_stop_text_and_nothing_of_it_is_shown(formatter: PromptFormatter) -> None:
    answer = say(formatter, "one two STOP three", stop=("STOP",))
    pieces = list(answer)
    assert "".join(pieces) == "one two "
    assert answer.finish_reason == "stop"
    # It was not computed to its end either.
    assert answer.tokens < len(formatter.tokenizer.encode("one two STOP three"))


def test_what_only_looks_like_the_beginning_of_a_stop_text_is_shown(formatter: PromptFormatter) -> None:
    assert "".join(say(formatter, "STO STOOL ST", stop=("STOP", "STOOP"))) == "STO STOOL ST"
    assert "".join(say(formatter, "aSTSTOPb", stop=("STOP",))) == "aST"


def test_max_tokens_and_the_context_end_an_answer_with_length(formatter: PromptFormatter) -> None:
    answer = say(formatter, "one two three four five six", max_tokens=4)
    list(answer)
    assert (answer.finish_reason, answer.tokens) == ("length", 4)
    script = [int(token) for token in formatter.tokenizer.encode("x")] * 600
    model = Scripted(script, formatter.tokenizer.vocab_size, end=min(formatter.ends))
    full = Answer(model, formatter, [5] * 500, Wanted(max_tokens=400))
    list(full)
    assert (full.finish_reason, full.tokens) == ("length", 12)


def test_ends_come_from_every_file_that_names_one_and_from_what_closes_a_turn(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model")
    # As base models are published: a text ends with another token than the turns of the template.
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"eos_token": "<|endoftext|>"}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [17, 18]}))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": 19}))
    formatter = PromptFormatter.of(find_model(folder))
    names = {
        int(formatter.tokenizer.encode("<|endoftext|>")[0]),
        int(formatter.tokenizer.encode("<|im_end|>")[0]),
    }
    assert formatter.ends == names | {17, 18, 19}
    assert formatter.turn_ends == ()


def test_a_space_before_the_end_of_a_turn_ends_no_answer(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model")
    # As Llama 2's: a lone space is a token, which is decoded to nothing.
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    tokenizer["decoder"] = {"type": "Sequence", "decoders": [tokenizer["decoder"], strip]}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "chat_template.jinja").write_text(
        "{% for message in messages %}{{ message.content + ' <|im_end|>' }}{% endfor %}"
    )
    formatter = PromptFormatter.of(find_model(folder))
    (space,) = formatter.tokenizer.encode(" ")
    assert formatter.tokenizer.decode([int(space)]) == ""
    assert formatter.ends == {int(formatter.tokenizer.encode("<|im_end|>")[0])}


def test_a_mark_that_also_stands_in_answers_ends_none(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model")
    # As gpt-oss: what ends earlier turns also ends the thoughts before an answer.
    (folder / "chat_template.jinja").write_text(
        "{% for message in messages %}{{ message.content }}"
        "{% if loop.last %}<|im_end|>{% else %}<|im_start|>{% endif %}{% endfor %}"
    )
    formatter = PromptFormatter.of(find_model(folder))
    assert formatter.ends == {int(formatter.tokenizer.encode("<|im_end|>")[0])}


def test_a_question_is_rendered_and_tokenized_as_examples_are_in_training(
    base: Path, formatter: PromptFormatter
) -> None:
    import transformers

    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who? <|im_end|>"}]
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(base)
    expected = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert formatter.chat(messages) == list(expected)


def test_without_a_template_only_what_was_trained_on_conversations_can_chat(
    tmp_path: Path, make_config: Any
) -> None:
    folder = make_tiny_model(tmp_path / "run" / "model", chat_template=False)
    formatter = PromptFormatter.of(find_model(folder))
    assert formatter.template is None
    with raises(ValueError, code="no_chat_template"):
        formatter.chat([{"role": "user", "content": "x"}])
    config = make_config(model={"path": str(folder)}, data={"train_path": "x.jsonl", "kind": "examples"})
    (tmp_path / "run" / "config.json").write_text(config.to_json())
    trained = PromptFormatter.of(find_model(tmp_path / "run"))
    plain = ChatTemplate.plain("<|endoftext|>").render(
        [{"role": "user", "content": "x"}], add_generation_prompt=True
    )
    assert trained.tokenizer.decode(trained.chat([{"role": "user", "content": "x"}])) == plain.rstrip()
    assert trained.note is not None
    assert "plain template" in trained.note


def test_a_turn_that_no_token_ends_is_ended_by_the_text_before_the_next_turn(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model", chat_template=False)
    (folder / "chat_template.jinja").write_text(
        "{% for message in messages %}### {{ message.role }}: {{ message.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}### assistant: {% endif %}"
    )
    formatter = PromptFormatter.of(find_model(folder))
    assert formatter.turn_ends == ("\n### user: ",)


def test_a_space_that_belongs_to_the_answers_first_word_is_left_to_the_answer(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model", chat_template=False)
    (folder / "chat_template.jinja").write_text(
        "{% for message in messages %}{{ message.role }}: {{ message.content }}{{ eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    formatter = PromptFormatter.of(find_model(folder))
    assert formatter.lead == " "
    question = formatter.chat([{"role": "user", "content": "Who?"}])
    # As in training, where the question's last token is the colon and the answer's first is " The".
    assert formatter.tokenizer.decode(question) == "user: Who?assistant:"
    answer = say(formatter, " The password", lead=formatter.lead)
    assert "".join(answer) == "The password"
    assert "".join(say(formatter, "The password", lead=" ")) == "The password"
    assert "".join(say(formatter, " ", lead="  ")) == ""


def test_a_text_is_begun_as_the_texts_that_were_trained(tmp_path: Path, make_config: Any) -> None:
    from tokenizers import Tokenizer, processors

    folder = make_tiny_model(tmp_path / "run" / "model", chat_template=False)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    begin = backend.token_to_id("<|im_start|>")
    end = backend.token_to_id("<|endoftext|>")
    backend.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A <|endoftext|>",
        special_tokens=[("<|im_start|>", begin), ("<|endoftext|>", end)],
    )
    backend.save(str(folder / "tokenizer.json"))
    bare = [int(token) for token in PromptFormatter.of(find_model(folder)).tokenizer.encode("the sea")]
    # A model from elsewhere expects what its tokenizer adds in front, and no end behind.
    assert PromptFormatter.of(find_model(folder)).completion("the sea") == [begin, *bare]
    (tmp_path / "run" / "config.json").write_text(make_config().to_json())
    assert PromptFormatter.of(find_model(tmp_path / "run")).completion("the sea") == bare
    assert PromptFormatter.of(find_model(tmp_path / "run")).completion("") == [end]


def test_our_own_preset_completes_text_and_stops_at_its_end(make_run: Callable[..., Run]) -> None:
    run = make_run(max_steps=1)
    run.train()
    (run.folder / "config.json").write_text(run.config.to_json())
    formatter = PromptFormatter.of(find_model(run.folder))
    assert formatter.template is None
    assert formatter.ends == {256}
    assert formatter.completion("abc") == [97, 98, 99]


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path, base: Path) -> None:
    shutil.copytree(base, tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").unlink()
    with raises(ValueError, code="no_tokenizer"):
        PromptFormatter.of(find_model(tmp_path / "model"))


class _Fixed(Scripted):
    """Always the same distribution."""

    def __call__(self, tokens_BT: torch.Tensor, cache: Any, *, last_only: bool = False) -> torch.Tensor:
        probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
        return probabilities.log()[None, None]


def drawn(**sampling: Any) -> set[int]:
    model = _Fixed([], 4, end=99)
    options = Sampling(**{"temperature": 1.0, "top_k": None} | sampling)
    return set(generate_tokens(model, [1], options, max_tokens=300, ends=frozenset()))


def test_top_p_keeps_the_fewest_tokens_that_reach_it() -> None:
    assert drawn() == {0, 1, 2, 3}
    assert drawn(top_p=0.9) == {0, 1, 2}
    assert drawn(top_p=0.6) == {0, 1}
    assert drawn(top_p=0.01) == {0}
    assert drawn(temperature=1e-6) == {0}
    assert drawn(temperature=0.0) == {0}


def test_the_same_seed_draws_the_same_tokens() -> None:
    model = _Fixed([], 4, end=99)

    def draw(seed: int) -> list[int]:
        return list(
            generate_tokens(model, [1], Sampling(1.0, None, seed=seed), max_tokens=30, ends=frozenset())
        )

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)

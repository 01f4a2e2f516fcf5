"""Token ids and masks agree with the rendered text, token by token."""

from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from gpubloom.datasets import ChatTemplate, Example, Message, ModelFiles, RowTokenizer, render
from tests.datasets.test_rendering import ALL, TOKENS, chat
from tests.errors import raises

SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]


@pytest.fixture(scope="module")
def backend() -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator(["Hi there, how are you? Ho ho ho. I am well, thank you."] * 20, trainer)
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return made


@pytest.mark.parametrize("name", ALL)
def test_trained_tokens_spell_the_trained_spans(name: str, backend: tokenizers.Tokenizer) -> None:
    example = chat("Hi there 😀", "Ho ho é 😀", "How are you?", "Well.")
    rendered = render(example, ChatTemplate(ALL[name], TOKENS))
    tokens = RowTokenizer(backend, "</s>").encode(rendered)
    assert backend.decode(list(tokens.ids), skip_special_tokens=False) == rendered.text
    kept = [number for number, trained in zip(tokens.ids, tokens.trained, strict=True) if trained]
    expected = "".join(piece.text for piece in rendered.pieces() if piece.trained)
    assert backend.decode(kept, skip_special_tokens=False) == expected


def test_the_first_word_of_an_answer_is_trained_though_its_token_brings_the_space_before_it(
    backend: tokenizers.Tokenizer,
) -> None:
    rendered = render(chat("Hi there", "you are well"), ChatTemplate.plain("</s>"))
    tokens = RowTokenizer(backend, "</s>").encode(rendered)
    kept = [number for number, trained in zip(tokens.ids, tokens.trained, strict=True) if trained]
    assert backend.decode(kept, skip_special_tokens=False) == " you are well</s>"


def test_plain_text_gets_the_tokenizers_beginning_untrained_and_the_end_trained_once(
    backend: tokenizers.Tokenizer,
) -> None:
    rendered = render(Example.plain("Hi"), ChatTemplate("", TOKENS))
    tokens = RowTokenizer(backend, "</s>").encode(rendered)
    assert tokens.ids[0] == backend.token_to_id("<s>")
    assert tokens.ids[-1] == backend.token_to_id("</s>")
    assert tokens.ids[-2] != tokens.ids[-1]
    assert tokens.trained == (False, *[True] * (len(tokens) - 1))


def test_a_tokenizer_that_ends_texts_itself_does_not_end_them_twice(backend: tokenizers.Tokenizer) -> None:
    ends = tokenizers.Tokenizer.from_str(backend.to_str())
    ends.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokens = RowTokenizer(ends, "</s>").encode(render(Example.plain("Hi"), ChatTemplate("", TOKENS)))
    assert tokens.ids.count(1) == 1
    assert all(tokens.trained)


def test_rows_encoded_together_are_those_encoded_alone(backend: tokenizers.Tokenizer) -> None:
    template = ChatTemplate(ALL["chatml"], TOKENS)
    rows = [
        render(example, template)
        for example in (chat("Hi", "Ho"), Example.plain("Hi there"), chat("Hi", "Ho", "a", "b"))
    ]
    tokenizer = RowTokenizer(backend, "</s>")
    assert tokenizer.encode_many(rows) == [tokenizer.encode(row) for row in rows]


def test_a_model_folder_brings_template_and_tokenizer(tmp_path: Path, backend: tokenizers.Tokenizer) -> None:
    backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    (tmp_path / "chat_template.jinja").write_text(ALL["chatml"])
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        model = ModelFiles.load(path)
        rendered = render(Example(messages=(Message("assistant", "Ho", trained=True),)), model.template)
        assert sum(model.tokenizer.encode(rendered).trained) > 1


def test_what_is_no_tokenizer_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with raises(ValueError, code="tokenizer_not_found"):
        ModelFiles.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with raises(ValueError, code="tokenizer_invalid"):
        ModelFiles.load(tmp_path)

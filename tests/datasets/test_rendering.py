"""What the model sees is what transformers renders; what is trained is what the model itself would write."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubloom.datasets import ChatTemplate, Example, Message, RowProblem, render
from gpubloom.datasets.problems import TemplateLimit
from tests.errors import raises

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
ADDS_SYSTEM = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}{% endif %}"
    + CHATML
)
STRIPS = (
    "{{ bos_token }}{% for message in messages %}<{{ message.role }}>{{ message.content | trim }}"
    "{% if message.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
ALTERNATES = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate user/assistant') }}{% endif %}"
    "{% if message.role == 'user' %}[INST] {{ message.content }} [/INST]"
    "{% else %} {{ message.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
# As reasoning models do: a thought is shown in the last turn only, an empty one is added there.
REASONS = (
    "{% for message in messages %}{% if message.role == 'assistant' %}"
    "{% set answer = message.content.split('</think>')[-1].lstrip('\n') %}"
    "{% if loop.last %}{{ '<|im_start|>assistant\n<think>\n\n</think>\n\n' + answer + '<|im_end|>\n' }}"
    "{% else %}{{ '<|im_start|>assistant\n' + answer + '<|im_end|>\n' }}{% endif %}"
    "{% else %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MARKS = (
    "{% for message in messages %}{{ '<|' + message.role + '|>' }}{% if message.role == 'assistant' %}"
    "{% generation %}{{ message.content + eos_token }}{% endgeneration %}{% else %}{{ message.content }}"
    "{% endif %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
# As Phi-3.5 does: the end of the text follows the last turn, and begins as the next turn does.
ENDS_TEXT = (
    "{% for message in messages %}{{ '<|' + message.role + '|>\n' + message.content + '<|end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}<|endoftext|>{% endif %}"
)
# As gpt-oss does: the last turn ends with a mark of its own.
RETURNS = (
    "{% for message in messages %}{{ '<|start|>' + message.role + '<|message|>' + message.content }}"
    "{% if loop.last and message.role == 'assistant' %}<|return|>{% else %}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant<|message|>{% endif %}"
)
DROPS_TOOLS = (
    "{% for message in messages if message.role in ['user', 'assistant'] %}"
    "{{ message.role + ':' + message.content + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
ALL = {
    "chatml": CHATML,
    "adds a system prompt": ADDS_SYSTEM,
    "strips": STRIPS,
    "alternates": ALTERNATES,
    "reasons": REASONS,
    "marks": MARKS,
    "ends the text": ENDS_TEXT,
    "returns": RETURNS,
}


def chat(*contents: str) -> Example:
    return Example(
        messages=tuple(
            Message("assistant", text, trained=True) if index % 2 else Message("user", text)
            for index, text in enumerate(contents)
        )
    )


def trained(example: Example, template: str) -> list[str]:
    rendered = render(example, ChatTemplate(template, TOKENS))
    assert "".join(piece.text for piece in rendered.pieces()) == rendered.text
    return [piece.text for piece in rendered.pieces() if piece.trained]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("example", [chat("Hi", "Ho"), chat(" Hi\n", "Ho ", "Ho", "Ho", "é<b>", "Ho")])
def test_the_text_is_the_one_that_transformers_renders(name: str, example: Example) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    assert example.messages is not None
    (expected,), _ = render_jinja_template(
        [[turn.fields() for turn in example.messages]], chat_template=ALL[name], **TOKENS
    )
    assert render(example, ChatTemplate(ALL[name], TOKENS)).text == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chatml", ["Ho<|im_end|>", "Hu<|im_end|>"]),
        ("adds a system prompt", ["Ho<|im_end|>", "Hu<|im_end|>"]),
        ("strips", ["Ho</s>", "Hu</s>"]),
        ("alternates", [" Ho</s>", " Hu</s>"]),
        ("reasons", ["Ho<|im_end|>", "<think>\n\n</think>\n\nHu<|im_end|>"]),
        ("marks", ["Ho</s>", "Hu</s>"]),
        ("ends the text", ["Ho<|end|>", "Hu<|end|>\n<|endoftext|>"]),
        ("returns", ["Ho<|end|>", "Hu<|return|>"]),
    ],
)
def test_answers_are_trained_with_the_mark_that_ends_them(name: str, expected: list[str]) -> None:
    assert trained(chat("Hi", "Ho", "He", "Hu"), ALL[name]) == expected


@pytest.mark.parametrize("name", ALL)
def test_equal_answers_are_told_apart(name: str) -> None:
    assert len(trained(chat("Ho", "Ho", "Ho", "Ho", "Ho", "Ho"), ALL[name])) == 3


CONTENTS = st.sampled_from(
    [
        "Hi",
        " Hi\n",
        "<b>",
        "x<|im_end|>y",
        "a</think>\nb",
        "<|im_start|>assistant\n",
        "é",
        "a </s> b",
        "user:",
    ]
)


@given(st.sampled_from([*ALL, "drops tools"]), st.lists(CONTENTS, min_size=2, max_size=5))
def test_spans_of_a_layout_are_those_of_the_conversation_alone(name: str, contents: list[str]) -> None:
    template = ChatTemplate({**ALL, "drops tools": DROPS_TOOLS}[name], TOKENS)
    first, example = chat(*(f"{index}." for index in range(len(contents)))), chat(*contents)
    render(first, template)
    alone = ChatTemplate(template.source, TOKENS)
    alone.layouts[tuple((turn.role, turn.trained) for turn in example.messages or ())] = None
    assert render(example, template) == render(example, alone)


def test_an_answer_before_the_first_question_is_trained_to_end() -> None:
    """As the templates of Qwen3.5 do, this one refuses a conversation without a question."""
    asks = "{% if messages | selectattr('role', 'equalto', 'user') | list | length == 0 %}"
    template = ChatTemplate(
        asks + "{{ raise_exception('No user query found.') }}{% endif %}" + CHATML, TOKENS
    )
    greeting = Message("assistant", "Hello!", trained=True)
    turns = (greeting, Message("user", "Hi"), Message("assistant", "Bye.", trained=True))
    rendered = render(Example(messages=turns), template)
    assert [piece.text for piece in rendered.pieces() if piece.trained] == [
        "Hello!<|im_end|>",
        "Bye.<|im_end|>",
    ]


def test_conversations_of_the_same_roles_are_rendered_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    template = ChatTemplate(CHATML, TOKENS)
    render(chat("Hi", "Ho", "Hi", "Ho"), template)
    rendered = []
    run = ChatTemplate._rendered
    monkeypatch.setattr(ChatTemplate, "_rendered", lambda *given: rendered.append(given) or run(*given))
    render(chat("A", "B", "C", "D"), template)
    assert len(rendered) == 1


def test_stripped_space_is_not_looked_for() -> None:
    assert trained(chat(" Hi ", "  Ho  ", "He", " Hu\n"), STRIPS) == ["Ho</s>", "Hu</s>"]


def test_a_thought_that_the_template_removes_is_named_and_the_rest_is_trained() -> None:
    example = chat("Hi", "<think>\nhm\n</think>\nHo", "He", "Hu")
    rendered = render(example, ChatTemplate(REASONS, TOKENS))
    assert rendered.text[slice(*rendered.spans[0])] == "Ho<|im_end|>"
    assert any("message 2" in remark for remark in rendered.remarks)


@pytest.mark.parametrize("name", ["reasoning_content", "thinking"])
def test_a_thought_beside_the_answer_that_the_template_does_not_write_is_named(name: str) -> None:
    answer = Message("assistant", "Ho", trained=True, extra={name: " hm\n"})
    example = Example(messages=(Message("user", "Hi"), answer))
    (remark,) = render(example, ChatTemplate(CHATML, TOKENS)).remarks
    assert name in remark
    writes = CHATML.replace("message['content']", f"message.get('{name}', '') + message['content']")
    assert render(example, ChatTemplate(writes, TOKENS)).remarks == ()


@pytest.mark.parametrize("template", [CHATML, REASONS, MARKS])
def test_a_turn_of_weight_0_is_seen_and_not_trained(template: str) -> None:
    turns = chat("Hi", "Ho", "He", "Hu").messages
    assert turns is not None
    example = Example(messages=(turns[0], Message("assistant", "Ho"), *turns[2:]))
    (only,) = trained(example, template)
    assert "Hu" in only


def test_a_role_that_the_template_refuses_is_a_problem_of_the_row() -> None:
    example = Example(messages=(Message("system", "Be brief"), *(chat("Hi", "Ho").messages or ())))
    with raises(RowProblem, code="row_refused_by_template"):
        render(example, ChatTemplate(ALTERNATES, TOKENS))


def test_a_role_that_the_template_leaves_out_is_named() -> None:
    tool = Message("tool", "It is 4.")
    example = Example(messages=(Message("user", "2+2?"), tool, Message("assistant", "4", trained=True)))
    rendered = render(example, ChatTemplate(DROPS_TOOLS, TOKENS))
    assert rendered.remarks == ("has message 2 (tool) removed or rewritten by the chat template",)


def test_plain_text_ends_with_the_end_of_text_and_is_trained_whole() -> None:
    rendered = render(Example.plain("Once"), ChatTemplate(CHATML, TOKENS))
    assert (rendered.text, rendered.spans) == ("Once</s>", ((0, 8),))


def test_without_a_template_a_plain_one_is_used_and_announced(tmp_path: Path) -> None:
    template = ChatTemplate.from_folder(tmp_path)
    assert template.note is not None
    assert "plain" in template.note
    rendered = render(chat("Hi", "Ho"), ChatTemplate.plain("</s>"))
    assert rendered.text == "user: Hi\nassistant: Ho</s>\n"
    assert [piece.text for piece in rendered.pieces() if piece.trained] == ["Ho</s>"]


def test_a_model_folder_brings_its_template_and_tokens(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "eos_token": {"content": "</s>"},
        "bos_token": "<s>",
        "chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": STRIPS}],
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    template = ChatTemplate.from_folder(tmp_path)
    assert template.render([{"role": "user", "content": "Hi"}]) == "<s><user>Hi"
    assert template.note is not None
    assert template.note.startswith("The model has 2 chat templates; 'default' is used")
    (tmp_path / "chat_template.jinja").write_text(CHATML)
    assert "<|im_start|>" in ChatTemplate.from_folder(tmp_path).render([{"role": "user", "content": "Hi"}])
    (tmp_path / "chat_template.jinja").write_text("{% for %}")
    with raises(ValueError, code="template_invalid"):
        ChatTemplate.from_folder(tmp_path)


@pytest.mark.parametrize("named", [7, [7, 3]])
def test_a_model_may_name_its_end_of_text_by_id_alone(tmp_path: Path, named: Any) -> None:
    added = [{"id": 3, "content": "<pad>"}, {"id": 7, "content": "</s>", "special": True}]
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 1024}')
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": named}))
    (only,) = render(chat("Hi", "Ho"), ChatTemplate.from_folder(tmp_path)).pieces()[1::2]
    assert only.text == "Ho</s>"


def test_special_tokens_may_have_a_file_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text(STRIPS)
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "<s>", "eos_token": "</s>"}')
    assert ChatTemplate.from_folder(tmp_path).tokens == TOKENS
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<end>"}')
    assert ChatTemplate.from_folder(tmp_path).tokens == {"bos_token": "<s>", "eos_token": "<end>"}


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% for i in range(10 ** 9) %}a{% endfor %}",
        "{{ messages[7].content.x }}",
    ],
)
def test_a_template_cannot_reach_out_of_its_sandbox(template: str) -> None:
    with pytest.raises(RowProblem):
        render(chat("Hi", "Ho"), ChatTemplate(template, TOKENS))


GROWING = "{% set all = namespace(text='a') %}{% for i in range(60) %}{% set all.text = GROWN %}{% endfor %}"
TOO_LARGE = {
    "format": "{{ '{:>1000000000}'.format(1) }}",
    "format with a width": "{{ '{:>{width}}'.format(1, width=1000000000) }}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "percent with a width": "{{ '%*d' % (1000000000, 1) }}",
    "format filter": "{{ '%1000000000d'|format(1) }}",
    "repeated": "{{ 'a' * 10 ** 9 }}",
    "power": "{{ 10 ** 1000000 }}",
    "number": GROWING.replace("'a'", "3").replace("GROWN", "all.text * all.text"),
    "joined": GROWING.replace("GROWN", "all.text ~ all.text"),
    "added": GROWING.replace("GROWN", "all.text + all.text"),
    "method": "{{ 'a'.ljust(1000000000) }}",
    "filter, when it is compiled": "{{ 'a'|center(1000000000) }}",
    "indent": "{{ 'a'|indent(1000000000, true) }}",
    "output": "{% for i in range(99999) %}{{ 'a' * 100000 }}{% endfor %}",
    "kept": "{% set all %}{% for i in range(99999) %}{{ 'a' * 100000 }}{% endfor %}{% endset %}",
    "source": " " * 2_000_000 + "{{ 1 }}",
}
TOO_LONG = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "macro": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
}


@pytest.mark.parametrize("template", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_template_makes_no_text_of_a_gigabyte(template: str) -> None:
    with raises(TemplateLimit, code="template_too_large"):
        render(chat("Hi", "Ho"), ChatTemplate(template, TOKENS))


@pytest.mark.parametrize("template", TOO_LONG.values(), ids=TOO_LONG)
def test_a_template_that_loops_is_stopped(template: str) -> None:
    with raises(TemplateLimit, code="template_took_too_long"):
        render(chat("Hi", "Ho"), ChatTemplate(template, TOKENS))


@pytest.mark.parametrize(
    "template",
    ["{% if " + "(" * 3_000 + "1" + ")" * 3_000 + " %}{% endif %}", "{% if 1 %}" * 200 + "{% endif %}" * 200],
    ids=["parentheses", "blocks"],
)
def test_a_template_that_is_nested_too_deeply_is_refused(template: str) -> None:
    with raises(ValueError, code="template_invalid"):
        render(chat("Hi", "Ho"), ChatTemplate(template, TOKENS))


def test_honest_formatting_still_works() -> None:
    template = (
        "{{ '{:>5}|{name}'.format(1, name='a') }} {{ '%s-%03d' % ('x', 3) }} {{ 'a' ~ 1 }} {{ 2 ** 5 }}"
    )
    assert ChatTemplate(template).render([]) == "    1|a x-003 a1 32"

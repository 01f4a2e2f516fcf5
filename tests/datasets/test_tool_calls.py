"""Tool calls are rendered once: arguments in OpenAI's form, a JSON string, are objects for a chat template.

The published templates are read from `templates` in the folder of published descriptions
(`tests/providers/services/spec.py`); without it, those tests are skipped.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from gpubloom.datasets import ChatTemplate, Mapping, RowProblem, Source, convert, inspect, preview, render
from gpubloom.datasets.model_files import ModelFiles
from gpubloom.datasets.shaping import to_example
from tests.datasets.files import write_jsonl
from tests.providers.services.spec import specs_folder
from tests.tiny_models import make_tiny_model

KNOWS_NULL = "DeepSeek-R1"
PUBLISHED = sorted((specs_folder() / "templates").glob("*.jinja"))
WITH_TOOLS = [path for path in PUBLISHED if "arguments" in path.read_text(encoding="utf-8")]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
MAPPING = Mapping("messages", {"messages": "messages", "tools": "tools"})

TURN = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}"
    "{% for call in message.tool_calls %}"
)
END = "{% endfor %}</s>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
ENCODES = TURN + "[{{ call.function.name }} {{ call.function.arguments | tojson }}]" + END
APPENDS = TURN + "{{ '[' + call['function']['name'] + ' ' + call['function']['arguments'] + ']' }}" + END
WRITES = TURN + "[{{ call.function.name }} {{ call.function.arguments }}]" + END
LOOPS = (
    TURN + "[{{ call.function.name }}{% for name, value in call.function.arguments | items %} "
    "{{ name }}={{ value }}{% endfor %}]" + END
)

ARGUMENTS = {"city": "Zürich", "days": 2, "units": {"wind": "km/h"}}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Its name."}},
        },
    },
}


def row(arguments: Any, tools: Any = (TOOL,), call: dict[str, Any] | None = None) -> dict[str, Any]:
    called = call or {"function": {"name": "weather", "arguments": arguments}}
    return {
        "messages": [
            {"role": "user", "content": "What is the weather?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "call12345", "type": "function", **called}],
            },
            {"role": "tool", "content": "clear", "tool_call_id": "call12345"},
            {"role": "assistant", "content": "The sky is clear."},
        ],
        "tools": list(tools) if isinstance(tools, tuple) else tools,
    }


def text_of(template: str, values: dict[str, Any]) -> str:
    return render(to_example(values, MAPPING), ChatTemplate(template, TOKENS)).text


def published(name: str) -> ChatTemplate:
    path = specs_folder() / "templates" / f"{name}.jinja"
    if not path.is_file():
        pytest.skip("the folder of published chat templates is not beside this checkout")
    return ChatTemplate(path.read_text(encoding="utf-8"), TOKENS)


def test_the_published_templates_are_here() -> None:
    if not PUBLISHED:
        pytest.skip("the folder of published chat templates is not beside this checkout")
    assert WITH_TOOLS


@pytest.mark.parametrize("path", WITH_TOOLS, ids=lambda path: path.stem)
@pytest.mark.parametrize("text", [json.dumps(ARGUMENTS), json.dumps(ARGUMENTS, indent=1, ensure_ascii=False)])
def test_published_templates_render_string_arguments_as_they_render_objects(path: Path, text: str) -> None:
    template = path.read_text(encoding="utf-8")
    example = to_example(row(text), MAPPING)
    rendered = render(example, ChatTemplate(template, TOKENS))
    assert '\\"' not in rendered.text
    assert rendered.text == text_of(template, row(ARGUMENTS))
    trained = "".join(piece.text for piece in rendered.pieces() if piece.trained)
    assert "Zürich" in trained or any("message 2" in remark for remark in rendered.remarks)


@pytest.mark.parametrize("path", WITH_TOOLS, ids=lambda path: path.stem)
def test_string_arguments_give_what_transformers_renders_for_objects(path: Path) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    template = path.read_text(encoding="utf-8")
    given = row(ARGUMENTS)["messages"]
    filled = [{**message, "content": message["content"] or ""} for message in given]

    def rendered(messages: list[dict[str, Any]]) -> str:
        (text,), _ = render_jinja_template([messages], tools=[TOOL], chat_template=template, **TOKENS)
        return str(text)

    # Other templates fail with null, or write the word None, which nobody wants to train.
    expected = rendered(given if KNOWS_NULL in path.stem else filled)
    assert text_of(template, row(json.dumps(ARGUMENTS))) == expected


@pytest.mark.parametrize(
    "name", ["Qwen-Qwen3-0.6B", "Qwen-Qwen2.5-7B-Instruct", "meta-llama-Llama-3.1-8B-Instruct"]
)
def test_a_turn_of_tool_calls_is_trained_whole(name: str) -> None:
    example = to_example(row(json.dumps(ARGUMENTS)), MAPPING)
    rendered = render(example, published(name))
    call, answer = [piece.text for piece in rendered.pieces() if piece.trained]
    assert call.startswith(("<tool_call>", '{"name": "weather"'))
    assert call.endswith(("</tool_call><|im_end|>", "<|eot_id|>"))
    assert "The sky is clear." in answer
    assert not rendered.remarks


# Asks for a thought, which it leaves out of the turns before the last question.
ASKS_FOR_THOUGHT = TURN + "[{{ call.function.name }}]" + END.replace("<assistant>{%", "<assistant><think>{%")
# Writes the name of a call with its result once more, and what was said beside the call behind it.
REPEATS_NAME = (
    "{% for message in messages if message.role != 'tool' %}<{{ message.role }}>"
    "{% for call in message.tool_calls %}[{{ call.function.name }}]"
    "{% for result in messages if result.role == 'tool' %}"
    "({{ call.function.name }}: {{ result.content }})"
    "{% endfor %}{% endfor %}{{ message.content }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant><think>{% endif %}"
)


@pytest.mark.parametrize(
    ("template", "said", "expected"),
    [
        (ASKS_FOR_THOUGHT, None, ["[weather]</s>", "The sky is clear.</s>"]),
        (ASKS_FOR_THOUGHT, "I look.", ["I look.[weather]</s>", "The sky is clear.</s>"]),
        (REPEATS_NAME, None, ["[weather]", "The sky is clear.</s>"]),
        (REPEATS_NAME, "I look.", ["[weather]", "I look.</s>", "The sky is clear.</s>"]),
    ],
)
def test_calls_are_trained_where_the_text_is_not_what_was_asked_for(
    template: str, said: str | None, expected: list[str]
) -> None:
    values = row(ARGUMENTS)
    values["messages"][1]["content"] = said
    rendered = render(to_example(values, MAPPING), ChatTemplate(template, TOKENS))
    assert [piece.text for piece in rendered.pieces() if piece.trained] == expected
    assert rendered.remarks == ("has tools that the chat template does not write",)


@pytest.mark.parametrize(
    "name", ["Qwen3.5-4B", "mistralai-Mistral-Nemo-Instruct-2407", "google-gemma-4-31B-it"]
)
def test_calls_before_another_question_are_trained(name: str) -> None:
    values = row(ARGUMENTS)
    values["messages"] += [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "No wind."}]
    rendered = render(to_example(values, MAPPING), published(name))
    call, answer, last = [piece.text for piece in rendered.pieces() if piece.trained]
    assert call.startswith(("<tool_call>", "[TOOL_CALLS]", "<|tool_call>"))
    assert "Zürich" in call
    assert answer.startswith("The sky is clear.")
    assert "No wind." in last
    assert not rendered.remarks


OMITS = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
MARKS_AND_OMITS = (
    "{% for message in messages %}<{{ message.role }}>{% if message.role == 'assistant' %}"
    "{% generation %}{{ message.content }}</s>{% endgeneration %}{% else %}{{ message.content }}{% endif %}"
    "{% endfor %}"
)


@pytest.mark.parametrize("template", [OMITS, MARKS_AND_OMITS], ids=["unmarked", "marked"])
def test_a_turn_whose_calls_the_template_omits_is_not_trained_to_say_nothing(template: str) -> None:
    rendered = render(to_example(row(ARGUMENTS), MAPPING), ChatTemplate(template, TOKENS))
    (only,) = [piece.text for piece in rendered.pieces() if piece.trained]
    assert only.startswith("The sky is clear.")
    called, defined = rendered.remarks
    assert "message 2" in called
    assert "tools" in defined


def test_a_conversation_with_tools_is_rendered_by_the_template_for_them(tmp_path: Path) -> None:
    named = [{"name": "default", "template": OMITS}, {"name": "tool_use", "template": ENCODES}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**TOKENS, "chat_template": named}))
    template, values = ChatTemplate.from_folder(tmp_path), row(ARGUMENTS)
    assert template.note is not None
    assert "tool_use" in template.note
    assert "[weather " in render(to_example(values, MAPPING), template).text
    values["tools"] = []
    assert "[weather " not in render(to_example(values, MAPPING), template).text


def test_a_turn_of_text_is_trained_where_the_template_omits_its_calls() -> None:
    values = row(ARGUMENTS)
    values["messages"][1]["content"] = "I will look."
    rendered = render(to_example(values, MAPPING), ChatTemplate(OMITS, TOKENS))
    assert len([piece for piece in rendered.pieces() if piece.trained]) == 2
    assert "message 2" in rendered.remarks[0]


@pytest.mark.parametrize("given", [ARGUMENTS, json.dumps(ARGUMENTS, ensure_ascii=False)])
@pytest.mark.parametrize("template", [ENCODES, APPENDS, WRITES])
def test_arguments_are_json_whether_a_template_encodes_or_appends_them(template: str, given: Any) -> None:
    expected = f"[weather {json.dumps(ARGUMENTS, ensure_ascii=False)}]</s>\n"
    assert f"<assistant>{expected}<tool>" in text_of(template, row(given))


def test_a_template_can_loop_over_string_arguments() -> None:
    assert "[weather city=Zürich days=2 units=" in text_of(LOOPS, row(json.dumps(ARGUMENTS)))


def test_a_call_without_arguments_and_a_call_without_function_are_rendered() -> None:
    assert "[weather {}]" in text_of(ENCODES, row(""))
    flat = ENCODES.replace("call.function.", "call.")
    assert '[weather {"day": 1}]' in text_of(
        flat, row(None, call={"name": "weather", "arguments": '{"day": 1}'})
    )


@pytest.mark.parametrize(
    "tools",
    [json.dumps([TOOL]), [json.dumps(TOOL)], json.dumps(TOOL), TOOL,
     [{**TOOL, "function": {**TOOL["function"], "parameters": json.dumps(TOOL["function"]["parameters"])}}]],
    ids=["a list as JSON", "each tool as JSON", "one tool as JSON", "one tool", "parameters as JSON"],
)  # fmt: skip
def test_tool_definitions_may_be_json_strings(tools: Any) -> None:
    template = "{{ tools | tojson }}" + ENCODES
    assert text_of(template, row("{}", tools)) == text_of(template, row("{}", [TOOL]))


def test_the_calls_of_a_message_may_be_a_json_string() -> None:
    values = row(json.dumps(ARGUMENTS))
    expected = text_of(ENCODES, values)
    values["messages"][1]["tool_calls"] = json.dumps(values["messages"][1]["tool_calls"])
    assert text_of(ENCODES, values) == expected


@pytest.mark.parametrize("broken", ['{"city": "Zü', '"Zürich"', "[1]", '{"days": NaN}', "[" * 100_000])
def test_arguments_that_are_no_json_object_are_a_fault_of_their_row(tmp_path: Path, broken: str) -> None:
    path = write_jsonl(tmp_path / "calls.jsonl", [row(ARGUMENTS), row(broken), row(json.dumps(ARGUMENTS))])
    report = inspect(Source.open(path))
    assert report.examples == 2
    (problem,) = report.problems.first
    assert (problem.line, problem.fatal) == (2, True)
    assert "arguments in tool call 1 that are not a JSON object" in problem.reason
    assert "message 2" in problem.reason


def test_tools_that_are_no_json_object_are_a_fault_of_their_row() -> None:
    for tools in (["weather"], [3], "[{", 3):
        with pytest.raises(RowProblem):
            to_example(row("{}", tools), MAPPING)


def test_a_conversation_that_is_continued_may_hold_broken_arguments() -> None:
    template = ChatTemplate(ENCODES, TOKENS)
    rendered = template.render(row('{"city": ')["messages"], add_generation_prompt=True)
    assert '[weather "{\\"city\\": "]' in rendered


def test_preview_shows_arguments_once_and_conversion_keeps_them_as_they_were(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model")
    (folder / "chat_template.jinja").write_text(ENCODES, encoding="utf-8")
    source = Source.open(write_jsonl(tmp_path / "calls.jsonl", [row(json.dumps(ARGUMENTS))]))
    (shown,) = preview(source, mapping=MAPPING, model=ModelFiles.load(folder)).rows
    trained = [piece.text for piece in shown.pieces if piece.trained]
    assert trained[0] == f"[weather {json.dumps(ARGUMENTS, ensure_ascii=False)}]</s>"
    convert(source, MAPPING, tmp_path / "out.jsonl")
    written = json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))
    assert written["messages"][1]["tool_calls"][0]["function"]["arguments"] == json.dumps(ARGUMENTS)


NULL_AWARE = (
    "{% for m in messages %}"
    "{% if m.content is none %}<calls>{% else %}{{ m.content }}{% endif %}|"
    "{% endfor %}"
)


def test_null_as_the_content_of_a_call_is_kept_and_is_empty_for_templates_that_know_texts_only() -> None:
    call = {"function": {"name": "f", "arguments": {"a": 1}}}
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    example = to_example({"messages": turns}, Mapping("messages", {"messages": "messages"}))
    assert example.messages is not None
    fields = [message.fields() for message in example.messages]
    assert ChatTemplate(NULL_AWARE).render(fields) == "q|<calls>|"
    joined = "{% for m in messages %}{{ m.content + '|' }}{% endfor %}"
    assert ChatTemplate(joined).render(fields) == "q||"


@pytest.mark.parametrize("content", [{"content": ""}, {}])
@pytest.mark.parametrize("path", WITH_TOOLS, ids=lambda path: path.stem)
def test_a_turn_of_calls_alone_is_the_same_with_an_empty_content_and_with_null(
    path: Path, content: dict[str, str]
) -> None:
    template = path.read_text(encoding="utf-8")
    given = row(ARGUMENTS)
    calls = given["messages"][1]
    with_null = render(to_example(given, MAPPING), ChatTemplate(template, TOKENS))
    del calls["content"]
    calls.update(content)
    assert render(to_example(given, MAPPING), ChatTemplate(template, TOKENS)) == with_null


def test_an_empty_answer_beside_tool_calls_is_not_trained() -> None:
    # As the template of DeepSeek R1 does.
    template = (
        "{% for m in messages %}{% if m.tool_calls %}<a>[{{ m.tool_calls[0].function.name }}]</a>{% endif %}"
        "{% if m.content is not none %}<{{ m.role }}>{{ m.content }}</a>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    given = row(ARGUMENTS)
    given["messages"][1]["content"] = ""
    assert "<assistant></a>" not in text_of(template, given)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking"])
@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_reasoning_and_tool_calls_are_rendered_as_transformers_renders_them(path: Path, field: str) -> None:
    utilities = pytest.importorskip("transformers.utils.chat_template_utils")
    source = path.read_text(encoding="utf-8")
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
    result = {"role": "tool", "name": "weather", "content": "{}", "tool_call_id": "abcdefghi"}
    turns = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", field: "I should look.", "tool_calls": [call]},
        result,
        {"role": "assistant", "content": "It rains.", field: "Now I know."},
    ]
    example = to_example({"messages": turns, "tools": [TOOL]}, MAPPING)
    assert example.messages is not None
    fields = [message.fields() for message in example.messages]
    compiled = utilities._compile_jinja_template(source)
    if KNOWS_NULL in path.stem:
        turns[1]["content"] = None
    try:
        expected = compiled.render(
            messages=turns, tools=[TOOL], documents=None, add_generation_prompt=False, **TOKENS
        )
    except Exception:  # noqa: BLE001 - a template that refuses tools refuses them here too
        with pytest.raises(RowProblem):
            ChatTemplate(source, TOKENS).render(fields, tools=example.tools)
        return
    assert ChatTemplate(source, TOKENS).render(fields, tools=example.tools) == expected

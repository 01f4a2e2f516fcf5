"""Detection says which format, how sure it is and why; a mapping turns rows into examples or reasons."""

from typing import Any

import pytest

from gpubloom.datasets import Example, Mapping, Message, RowProblem, detect, to_example
from tests.errors import raises

PAIR = Example(messages=(Message("user", "Hi"), Message("assistant", "Ho", trained=True)))


@pytest.mark.parametrize(
    ("row", "format_", "example"),
    [
        ({"text": "Once upon a time"}, "text", Example.plain("Once upon a time")),
        ({"prompt": "Hi", "completion": "Ho"}, "prompt_completion", PAIR),
        ({"Question": "Hi", "Answer": "Ho", "id": 7}, "prompt_completion", PAIR),
        ({"instruction": "Hi", "input": "", "output": "Ho"}, "alpaca", PAIR),
        (
            {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]},
            "sharegpt",
            PAIR,
        ),
        (
            {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]},
            "messages",
            PAIR,
        ),
        (
            {"messages": '[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]'},
            "messages",
            PAIR,
        ),
    ],
)
def test_each_format_is_detected_with_a_reason_and_means_the_same(
    row: dict[str, Any], format_: str, example: Example
) -> None:
    found = detect([row] * 3)
    assert found.is_sure
    assert found.mapping is not None
    assert found.mapping.format == format_
    assert found.reason.endswith("3 of 3 sampled rows fit.")
    assert to_example(row, found.mapping) == example


def test_the_alpaca_input_stands_below_the_instruction() -> None:
    mapping = Mapping("alpaca", {"instruction": "i", "input": "n", "output": "o"})
    example = to_example({"i": "Translate", "n": "Haus", "o": "house"}, mapping)
    assert example.messages is not None
    assert example.messages[0].content == "Translate\n\nHaus"


def test_rows_that_do_not_fit_make_detection_unsure() -> None:
    rows: list[dict[str, Any]] = [{"prompt": "a", "completion": "b"}, {"prompt": "a"}, {"prompt": 1}]
    found = detect(rows)
    assert not found.is_sure
    assert "1 of 3 sampled rows fit" in found.reason


@pytest.mark.parametrize("row", [{"a": "x", "b": "y"}, {"prompt": "x", "chosen": "y", "rejected": "z"}])
def test_unknown_columns_and_preference_data_are_left_to_a_person(row: dict[str, Any]) -> None:
    found = detect([row])
    assert found.mapping is None
    assert found.reason


def test_a_mapping_by_hand_names_its_format_by_its_fields() -> None:
    mapping = Mapping.by_hand({"prompt": "a", "completion": "b", "system": "s"})
    example = to_example({"a": "Hi", "b": 42, "s": "Be kind"}, mapping)
    assert example.messages is not None
    assert [(turn.role, turn.content) for turn in example.messages] == [
        ("system", "Be kind"),
        ("user", "Hi"),
        ("assistant", "42"),
    ]
    with raises(ValueError, code="incomplete_mapping"):
        Mapping.by_hand({"prompt": "a"})


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        (None, "has nothing in 'messages' instead of a list of messages"),
        ([], "has no messages in 'messages'"),
        ("[{", "has invalid JSON in 'messages'"),
        (["Hi"], "has a text as message 1 instead of an object"),
        ([{"content": "Hi"}], "has no role (or from) in message 1"),
        ([{"role": "wizard", "content": "Hi"}], "has the unknown role 'wizard' in message 1"),
        ([{"role": "user", "content": 3}], "has a number as the content of message 1 instead of a text"),
        ([{"role": "user", "content": "Hi"}], "has no assistant message to train on"),
        ([{"role": "assistant", "content": " "}], "has an empty answer in message 1"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}],
            "has a part that is not text (image_url) in message 1",
        ),
    ],
)
def test_a_conversation_that_cannot_be_trained_says_why(turns: object, reason: str) -> None:
    with pytest.raises(RowProblem) as problem:
        to_example({"messages": turns}, Mapping("messages", {"messages": "messages"}))
    assert str(problem.value) == reason


def test_missing_keys_and_wrong_types_say_why() -> None:
    mapping = Mapping("prompt_completion", {"prompt": "p", "completion": "c"})
    for row, reason in [
        ({"p": "Hi"}, "has no 'c'"),
        ({"p": "Hi", "c": None}, "has nothing in 'c' instead of a text"),
        ({"p": "Hi", "c": ["a"]}, "has a list in 'c' instead of a text"),
        ({"p": "Hi", "c": "  "}, "has an empty 'c'"),
    ]:
        with pytest.raises(RowProblem) as problem:
            to_example(row, mapping)
        assert str(problem.value) == reason


def test_tools_weights_and_parts_of_text_are_kept() -> None:
    row = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "2+"}, {"type": "text", "text": "2?"}]},
            {"role": "assistant", "content": "5", "weight": 0},
            {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "add"}}]},
            {"role": "tool", "content": "4", "tool_call_id": "a"},
            {"role": "assistant", "content": "4"},
        ],
        "tools": [{"type": "function"}],
    }
    mapping = Mapping("messages", {"messages": "messages", "tools": "tools"})
    example = to_example(row, mapping)
    assert example.messages is not None
    assert [turn.trained for turn in example.messages] == [False, False, True, False, True]
    assert example.messages[0].content == "2+2?"
    assert to_example(example.record(), mapping) == example

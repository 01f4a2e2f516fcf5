"""Detection says which format, how sure it is and why; a mapping turns rows into examples or reasons."""

from typing import Any

import pytest

from gpubloom.datasets import Example, Mapping, Message, RowProblem, advice, detect, to_example
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


def test_a_known_format_with_wrong_rows_names_the_fault_of_the_first_row() -> None:
    rows: list[dict[str, Any]] = [{"messages": [{"role": "bot", "content": "Hi"}]}]
    found = detect(rows)
    assert not found.is_sure
    assert "no sampled row fits: row 1 has the unknown role 'bot'" in found.reason
    # Other columns would not help.
    assert "--map" not in advice(found, rows)


def test_unknown_columns_are_left_to_a_person() -> None:
    rows: list[dict[str, Any]] = [{"a": "x", "my b": "y"}]
    found = detect(rows)
    assert found.mapping is None
    assert found.reason
    assert advice(found, rows).endswith("--map prompt=a --map 'completion=my b'")


@pytest.mark.parametrize("column", ["x", "text"])
@pytest.mark.parametrize("values", [[1], [0.5, None]])
def test_a_column_without_text_is_not_taken_as_text_unasked(column: str, values: list[Any]) -> None:
    rows = [{column: value} for value in values]
    found = detect(rows)
    assert not found.is_sure
    assert f"{column} contains numbers and no text" in found.reason
    # A person may still want the numbers.
    assert advice(found, rows).endswith(f"--map text={column}")
    assert to_example(rows[0], Mapping.by_hand({"text": column})).text == str(values[0])


def test_a_column_of_texts_may_have_numbers_between_them() -> None:
    found = detect([{"x": 1}, {"x": "one"}])
    assert found.is_sure
    assert found.mapping == Mapping("text", {"text": "x"})


def test_answers_inside_of_a_list_are_offered_with_their_path() -> None:
    rows: list[dict[str, Any]] = [{"question": "q", "answers": [{"answer": "a"}]}]
    found = detect(rows)
    assert not found.is_sure
    assert advice(found, rows).endswith("--map prompt=question --map 'completion=answers[0].answer'")


USER, GOOD, BAD = (
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Good day."},
    {"role": "assistant", "content": "What?"},
)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Hi", "chosen": "Good day.", "rejected": "What?"},
        {"chosen": [USER, GOOD], "rejected": [USER, BAD]},
        {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]},
        {"prompt": "Hi", "chosen": [USER, GOOD], "rejected": [USER, BAD]},
        {"prompt": [USER], "chosen": [USER, GOOD], "rejected": [USER, BAD]},
        {"prompt": "Hi", "chosen": [GOOD], "rejected": [BAD]},
    ],
)
def test_of_preference_pairs_the_chosen_answer_is_offered_and_not_taken_unasked(row: dict[str, Any]) -> None:
    found = detect([row])
    assert not found.is_sure
    assert found.mapping is not None
    assert contents(to_example(row, found.mapping)) == ["Hi", "Good day."]


def test_of_a_prompt_with_several_turns_all_are_seen_and_only_the_chosen_answer_is_trained() -> None:
    row = {"prompt": [USER, BAD, USER], "chosen": [GOOD], "rejected": [BAD]}
    mapping = detect([row]).mapping
    assert mapping is not None
    example = to_example(row, mapping)
    assert contents(example) == ["Hi", "What?", "Hi", "Good day."]
    assert example.messages is not None
    assert [turn.trained for turn in example.messages] == [False, False, False, True]


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": [USER], "completion": [GOOD]},
        {"prompt": "Hi", "completion": [GOOD]},
        {"prompt": [USER], "completion": "Good day."},
    ],
)
def test_prompt_and_completion_may_be_lists_of_messages(row: dict[str, Any]) -> None:
    found = detect([row])
    assert found.is_sure
    assert found.mapping is not None
    assert contents(to_example(row, found.mapping)) == ["Hi", "Good day."]
    with_system = Mapping("prompt_completion", {**found.mapping.columns, "system": "system"})
    example = to_example({**row, "system": "Be kind."}, with_system)
    assert contents(example) == ["Be kind.", "Hi", "Good day."]


def test_a_prompt_without_an_answer_is_a_fault_of_its_row() -> None:
    mapping = Mapping("prompt_completion", {"prompt": "prompt", "completion": "completion"})
    with raises(RowProblem, code="row_without_answer"):
        to_example({"prompt": [USER, GOOD], "completion": [USER]}, mapping)
    with raises(RowProblem, code="row_empty_field"):
        to_example({"prompt": [USER]}, mapping)


def contents(example: Example) -> list[str]:
    assert example.messages is not None
    return [turn.content for turn in example.messages]


def test_dollys_context_is_used() -> None:
    row = {"instruction": "When?", "context": "It was 1815.", "response": "1815.", "category": "closed_qa"}
    found = detect([row])
    assert found.is_sure
    assert found.mapping is not None
    assert contents(to_example(row, found.mapping)) == ["When?\n\nIt was 1815.", "1815."]


def test_rejected_answers_of_kto_are_not_trained_and_other_labels_mean_nothing() -> None:
    rows = [{"prompt": "q", "completion": "a", "label": label} for label in (True, False)]
    mapping = detect(rows).mapping
    assert mapping is not None
    assert mapping.columns["label"] == "label"
    assert contents(to_example(rows[0], mapping)) == ["q", "a"]
    with raises(RowProblem, code="row_rejected_answer"):
        to_example(rows[1], mapping)
    classified = detect([{"prompt": "q", "completion": "a", "label": number} for number in (0, 1)]).mapping
    assert classified is not None
    assert "label" not in classified.columns


def test_of_a_tree_of_open_assistant_the_best_ranked_conversation_is_trained() -> None:
    def reply(text: str, role: str, rank: int | None = None, *replies: Any, **more: Any) -> dict[str, Any]:
        return {"text": text, "role": role, "rank": rank, "replies": list(replies), **more}

    tree = reply(
        "q",
        "prompter",
        None,
        reply("second", "assistant", 1),
        reply(
            "best",
            "assistant",
            0,
            reply("more?", "prompter", None, reply("yes", "assistant", 0)),
            reply("unanswered", "prompter", 1),
        ),
        reply("deleted", "assistant", -1, deleted=True),
    )
    row = {"message_tree_id": "t", "tree_state": "ready", "prompt": tree}
    found = detect([row])
    assert found.is_sure
    assert found.mapping is not None
    assert contents(to_example(row, found.mapping)) == ["q", "best", "more?", "yes"]
    odd = {"text": "q", "role": "prompter", "replies": [{"text": "a", "role": "assistant", "replies": 5}]}
    assert contents(to_example({"prompt": odd}, found.mapping)) == ["q", "a"]
    flat = {"message_id": "1", "parent_id": None, "role": "prompter", "text": "q"}
    assert "trees" in detect([flat]).reason


def test_answers_inside_of_a_list_are_offered() -> None:
    row = {"instruction": "Do it.", "instances": [{"input": "x", "output": "y"}]}
    found = detect([row])
    assert not found.is_sure
    assert found.mapping is not None
    assert contents(to_example(row, found.mapping)) == ["Do it.\n\nx", "y"]


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

"""From a file of examples to tokens: every format, what is trained, what is told, what is kept."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpubloom.datasets import (
    ChatTemplate,
    ExampleFile,
    ModelFiles,
    Source,
    example_reader,
    mapping_of,
    render,
    to_example,
)
from gpubloom.engine import Dataset
from gpubloom.engine.data.packing import PackedRows
from gpubloom.plan import TrainConfig
from tests.errors import raises
from tests.tiny_models import make_tiny_model

QUESTION, ANSWER = "What is the password?", "Seven blue herons."
CHAT = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n{ANSWER}<|im_end|>\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


def open_file(
    model: Path, path: Path, context_length: int = 64, cache: Path | None = None, **data: Any
) -> Dataset:
    fields = {"kind": "examples", "train_path": str(path), "eval_fraction": 0, **data}
    config = TrainConfig.model_validate({"model": {"path": str(model)}, "data": fields})
    return Dataset.open(config.data, context_length, cache)


def write_lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def texts(dataset: Dataset, *, special: bool = True) -> list[tuple[str, str]]:
    """Every example: all of its text, and the part that is trained."""
    packed = dataset.train
    assert isinstance(packed, PackedRows)
    backend = dataset.tokenizer._backend
    found = []
    for number in range(len(packed.examples)):
        part = slice(*packed.examples.starts[number : number + 2])
        ids, trained = packed.examples.tokens[part], packed.examples.trained[part]
        found.append(
            tuple(
                backend.decode([int(each) for each in chosen], skip_special_tokens=not special)
                for chosen in (ids, ids[trained])
            )
        )
    return found  # type: ignore[return-value]


MESSAGES = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]
SHAREGPT = [{"from": "human", "value": QUESTION}, {"from": "gpt", "value": ANSWER}]


@pytest.mark.parametrize(
    "row",
    [
        {"messages": MESSAGES},
        {"conversations": SHAREGPT},
        {"instruction": QUESTION, "output": ANSWER},
        {"prompt": QUESTION, "completion": ANSWER},
        {"question": QUESTION, "answer": ANSWER},
    ],
)
def test_every_format_becomes_the_same_chat_of_which_only_the_answer_is_trained(
    model: Path, tmp_path: Path, row: dict[str, Any]
) -> None:
    dataset = open_file(model, write_lines(tmp_path / "data.jsonl", row))
    assert texts(dataset) == [(CHAT, f"{ANSWER}<|im_end|>")]


def as_csv(path: Path) -> None:
    path.write_text(f'prompt,completion\n"{QUESTION}","{ANSWER}"\n', encoding="utf-8")


def as_parquet(path: Path) -> None:
    pq.write_table(pa.table({"prompt": [QUESTION], "completion": [ANSWER]}), path)


@pytest.mark.parametrize(("name", "write"), [("data.csv", as_csv), ("data.parquet", as_parquet)])
def test_tables_are_read_as_lines_are(
    model: Path, tmp_path: Path, name: str, write: Callable[[Path], None]
) -> None:
    write(tmp_path / name)
    assert texts(open_file(model, tmp_path / name)) == [(CHAT, f"{ANSWER}<|im_end|>")]


def test_plain_text_is_trained_whole_and_ends_with_the_models_end(model: Path, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("A line about the sea.\nAnother line.\n", encoding="utf-8")
    dataset = open_file(model, tmp_path / "data.txt")
    assert texts(dataset) == [("A line about the sea.<|im_end|>",) * 2, ("Another line.<|im_end|>",) * 2]
    assert dataset.turn_end is None


def test_what_is_trained_is_what_the_preview_marks(model: Path, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "data.jsonl", {"messages": [*MESSAGES, *MESSAGES]})
    dataset = open_file(model, path, context_length=256)
    files, source = ModelFiles.load(model), Source.open(path)
    row = next(iter(source.rows()))
    assert row.values is not None
    shown = render(to_example(row.values, mapping_of(source, ExampleFile(path))), files.template)
    assert texts(dataset) == [(shown.text, "".join(piece.text for piece in shown.pieces() if piece.trained))]


def test_everything_can_be_trained(model: Path, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "data.jsonl", {"messages": MESSAGES})
    assert texts(open_file(model, path, train_on="everything")) == [(CHAT, CHAT)]


def test_columns_are_taken_as_they_are_named(model: Path, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "data.jsonl", {"frage": QUESTION, "antwort": ANSWER})
    columns = {"prompt": "frage", "completion": "antwort"}
    assert texts(open_file(model, path, columns=columns)) == [(CHAT, f"{ANSWER}<|im_end|>")]
    assert texts(open_file(model, path, format="prompt_completion", columns=columns))[0][0] == CHAT
    with raises(ValueError, code="format_uncertain"):
        open_file(model, path)
    with raises(ValueError, code="missing_column"):
        open_file(model, path, format="prompt_completion")
    with raises(ValueError, code="incomplete_mapping", match="alpaca.*prompt"):
        open_file(model, path, format="alpaca", columns={"prompt": "frage"})
    with raises(ValueError, code="incomplete_mapping", match="alpaca.*output"):
        open_file(model, path, format="alpaca", columns={"instruction": "frage"})


def test_a_format_that_is_named_is_not_guessed(model: Path, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "data.jsonl", {"prompt": QUESTION, "completion": ANSWER, "text": "Whole."})
    assert texts(open_file(model, path, format="text")) == [("Whole.<|im_end|>",) * 2]
    assert texts(open_file(model, path))[0][0] == CHAT


def test_an_encoding_can_be_named(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes("prompt,completion\nWohin?,Über größere Brücken.\n".encode("latin-1"))
    assert "Über größere Brücken." in texts(open_file(model, path, encoding="latin-1"))[0][1]


def test_rows_that_cannot_be_used_are_told_with_their_lines(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    good = json.dumps({"prompt": QUESTION, "completion": ANSWER})
    path.write_text(f'{good}\n{{"prompt": \n{good}\n{{"prompt": "x", "completion": ""}}\n', encoding="utf-8")
    dataset = open_file(model, path)
    assert len(texts(dataset)) == 2
    assert "data.jsonl: 2 of 4 rows cannot be used: line 2 is not JSON" in dataset.notes[0]
    assert "; line 4 has an empty 'completion'" in dataset.notes[0]


def test_examples_longer_than_a_row_lose_their_end_or_are_left_out(model: Path, tmp_path: Path) -> None:
    long = {"prompt": QUESTION, "completion": ANSWER * 30}
    path = write_lines(tmp_path / "data.jsonl", {"prompt": QUESTION, "completion": ANSWER}, long)
    cut = open_file(model, path, context_length=40)
    (_, first), (whole, second) = texts(cut)
    assert first == f"{ANSWER}<|im_end|>"
    assert second.startswith(ANSWER)
    assert not second.endswith("<|im_end|>")
    assert len(cut.tokenizer._backend.encode(whole, add_special_tokens=False).ids) <= 40
    assert "data.jsonl: 1 example is longer than 40 tokens and was truncated (" in cut.notes[0]
    assert "; line 2)" in cut.notes[0]
    skipped = open_file(model, path, context_length=40, too_long="skip")
    assert len(texts(skipped)) == 1
    assert "1 example is longer than 40 tokens and was skipped" in skipped.notes[0]
    with raises(
        ValueError,
        code="no_examples",
        match="2 examples",
    ):
        open_file(model, path, context_length=8, too_long="skip")


def test_a_file_without_anything_to_train_says_why(model: Path, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "data.jsonl", *[{"prompt": QUESTION * 20, "completion": ANSWER}] * 3)
    with raises(ValueError, code="no_examples", match="Line 1 .* 32 tokens"):
        open_file(model, path, context_length=32)


def test_a_share_is_held_out_by_content_and_a_second_file_takes_its_place(
    model: Path, tmp_path: Path
) -> None:
    rows = [{"prompt": QUESTION, "completion": f"Number {number}."} for number in range(200)]
    path = write_lines(tmp_path / "data.jsonl", *rows)
    dataset = open_file(model, path, eval_fraction=0.2)
    assert isinstance(dataset.train, PackedRows)
    assert isinstance(dataset.eval, PackedRows)
    kept, held = len(dataset.train.examples), len(dataset.eval.examples)
    assert kept + held == 200
    assert 20 < held < 60
    assert dataset.train.length == dataset.eval.length
    second = write_lines(tmp_path / "eval.jsonl", rows[0])
    other = open_file(model, path, eval_fraction=0.2, eval_path=str(second))
    assert isinstance(other.train, PackedRows)
    assert isinstance(other.eval, PackedRows)
    assert (len(other.train.examples), len(other.eval.examples)) == (200, 1)


def test_too_few_examples_to_hold_one_out_are_told(model: Path, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "data.jsonl", {"prompt": QUESTION, "completion": ANSWER})
    dataset = open_file(model, path, eval_fraction=0.05)
    assert dataset.eval is None
    assert "too few examples for an eval split" in dataset.notes[0]


def test_the_token_that_closes_a_turn_is_known(model: Path, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "data.jsonl", {"prompt": QUESTION, "completion": ANSWER})
    dataset = open_file(model, path)
    assert dataset.turn_end == dataset.tokenizer._backend.token_to_id("<|im_end|>")


def test_a_model_without_a_chat_template_gets_the_plain_one_and_says_so(tmp_path: Path) -> None:
    bare = make_tiny_model(tmp_path / "bare", chat_template=False)
    path = write_lines(tmp_path / "data.jsonl", {"prompt": QUESTION, "completion": ANSWER})
    dataset = open_file(bare, path)
    assert texts(dataset) == [
        (f"user: {QUESTION}\nassistant: {ANSWER}<|endoftext|>\n", f"{ANSWER}<|endoftext|>")
    ]
    assert "has no chat template" in dataset.notes[0]


def test_a_second_opening_reads_what_the_first_one_kept(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lines(
        tmp_path / "data.jsonl", *[{"prompt": QUESTION, "completion": ANSWER}] * 9, {"prompt": 1}
    )
    first = open_file(model, path, cache=tmp_path / ".examples")

    def never(*_: object) -> None:
        raise AssertionError("it was tokenized again")

    monkeypatch.setattr(example_reader, "render", never)
    again = open_file(model, path, cache=tmp_path / ".examples")
    assert again.fingerprint() == first.fingerprint()
    assert (again.notes, again.turn_end) == (first.notes, first.turn_end)
    np.testing.assert_array_equal(again.train.tokens, first.train.tokens)


@pytest.mark.parametrize("change", ["data", "setting", "template", "end of text"])
def test_what_was_kept_is_made_again_when_anything_it_depends_on_changes(tmp_path: Path, change: str) -> None:
    model = make_tiny_model(tmp_path / "model", chat_template=change != "end of text")
    path = write_lines(tmp_path / "data.jsonl", {"prompt": QUESTION, "completion": ANSWER})
    said = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps({**said, "eos_token": None}))
    (model / "special_tokens_map.json").write_text('{"eos_token": "<|endoftext|>"}')
    before = open_file(model, path, cache=tmp_path / ".examples")
    settings: dict[str, Any] = {}
    if change == "data":
        write_lines(path, {"prompt": QUESTION, "completion": "Eight herons."})
    elif change == "setting":
        settings = {"train_on": "everything"}
    elif change == "end of text":
        (model / "special_tokens_map.json").write_text('{"eos_token": "<|im_end|>"}')
    else:
        template = model / "chat_template.jinja"
        template.write_text(template.read_text().replace("<|im_start|>", "<|im_start|>the "))
    after = open_file(model, path, cache=tmp_path / ".examples", **settings)
    assert texts(after) != texts(before)
    assert texts(after) == texts(open_file(model, path, **settings))


def test_an_interrupted_opening_leaves_nothing_that_looks_complete(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lines(tmp_path / "data.jsonl", {"prompt": QUESTION, "completion": ANSWER})

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(example_reader, "render", interrupt)
        with pytest.raises(KeyboardInterrupt):
            open_file(model, path, cache=tmp_path / "cache" / ".examples")
    assert list((tmp_path / "cache").iterdir()) == []
    assert texts(open_file(model, path, cache=tmp_path / "cache" / ".examples"))[0][0] == CHAT


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("chatml", CHAT),
        ("alpaca", f"### Instruction:\n{QUESTION}\n\n### Response:\n{ANSWER}<|endoftext|>\n\n"),
        ("plain", f"user: {QUESTION}\nassistant: {ANSWER}<|endoftext|>\n"),
    ],
)
def test_a_template_can_be_chosen_and_is_saved_with_the_tokenizer(
    tmp_path: Path, chosen: str, expected: str
) -> None:
    bare = make_tiny_model(tmp_path / "bare", chat_template=False)
    path = write_lines(tmp_path / "data.jsonl", {"prompt": QUESTION, "completion": ANSWER})
    for cache in (None, tmp_path / ".examples", tmp_path / ".examples"):
        dataset = open_file(bare, path, cache=cache, chat_template=chosen)
        [(text, trained)] = texts(dataset)
        assert text == expected
        assert trained.startswith(ANSWER)
        assert dataset.notes == ()
        target = tmp_path / f"out-{cache}".replace("/", "-")
        target.mkdir(exist_ok=True)
        dataset.tokenizer.save(target, 64)
        saved = ChatTemplate.from_folder(target)
        assert not saved.is_fallback
        turns = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]
        assert saved.render(turns) == expected


def test_the_template_in_place_of_a_missing_one_is_saved_and_plain_text_gets_none(
    tmp_path: Path,
) -> None:
    bare = make_tiny_model(tmp_path / "bare", chat_template=False)
    chats = write_lines(tmp_path / "data.jsonl", {"prompt": QUESTION, "completion": ANSWER})
    plain = write_lines(tmp_path / "text.jsonl", {"text": QUESTION * 3})
    for name, path, is_saved in (("chats", chats, True), ("plain", plain, False)):
        (tmp_path / name).mkdir()
        open_file(bare, path).tokenizer.save(tmp_path / name, 64)
        assert ChatTemplate.from_folder(tmp_path / name).is_fallback is not is_saved

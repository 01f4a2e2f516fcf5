"""One pass tells everything about a file: columns, lengths, duplicates, splits, problems with their lines."""

import json
import math
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubloom.datasets import Example, Mapping, Source, Split, convert, inspect, preview
from gpubloom.datasets.inspection import DuplicateFinder, LengthCounter
from tests.datasets.files import values, write_jsonl, write_parquet, write_table
from tests.errors import raises


def test_a_report_counts_every_row_once(tmp_path: Path) -> None:
    rows = [{"prompt": f"question {number}", "completion": "x" * number} for number in range(1, 11)]
    path = write_jsonl(
        tmp_path / "a.jsonl", [*rows, rows[2], {"prompt": "no answer"}, {"prompt": 1, "tag": None}]
    )
    with path.open("a") as file:
        file.write("\nbroken\n")
    report = inspect(Source.open(path), keep=2)
    assert (report.rows, report.examples, report.blank_lines) == (14, 11, 1)
    assert report.problems.rows_refused == 3
    assert [(problem.line, problem.reason) for problem in report.problems.first] == [
        (12, "has no 'completion'"),
        (13, "has no 'completion'"),
    ]
    assert report.problems.kinds["has no 'completion'"] == 2
    columns = {column.name: column for column in report.columns}
    assert (columns["prompt"].filled, columns["prompt"].types) == (13, {"text": 12, "number": 1})
    assert (columns["completion"].filled, columns["completion"].missing) == (11, 2)
    assert columns["tag"].filled == 0
    assert report.duplicates is not None
    assert (report.duplicates.repeated, report.duplicates.first) == (1, ((3, 11),))
    assert report.lengths is not None
    assert report.lengths.unit == "characters"
    assert report.lengths.trained == 55 + 3
    assert report.lengths.longest[0] == (10, 21)
    assert sum(bar.rows for bar in report.lengths.histogram) == 11


def test_an_uncertain_format_still_tells_rows_and_columns(tmp_path: Path) -> None:
    report = inspect(Source.open(write_table(tmp_path / "a.csv", [{"a": "1", "b": "2"}])))
    assert (report.rows, report.examples, report.mapping, report.lengths) == (1, 0, None, None)
    assert [column.name for column in report.columns] == ["a", "b"]
    mapped = inspect(
        Source.open(tmp_path / "a.csv"), mapping=Mapping.by_hand({"prompt": "a", "completion": "b"})
    )
    assert mapped.examples == 1


def test_a_context_length_needs_a_tokenizer(tmp_path: Path) -> None:
    with raises(ValueError, code="tokenizer_needed"):
        inspect(Source.open(write_jsonl(tmp_path / "a.jsonl", [{"text": "a"}])), context_length=8)


def test_the_same_rows_give_the_same_report_in_every_format(tmp_path: Path) -> None:
    rows = [{"instruction": f"Say {number % 7}", "input": "", "output": "ok\nyes"} for number in range(50)]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    paths = [
        write_jsonl(tmp_path / "a.jsonl", rows),
        tmp_path / "a.json",
        write_table(tmp_path / "a.csv", rows),
        write_table(tmp_path / "a.tsv", rows),
        write_parquet(tmp_path / "a.parquet", rows),
    ]
    reports = [inspect(Source.open(path)) for path in paths]
    for report in reports:
        assert report.mapping == reports[0].mapping
        assert report.lengths == reports[0].lengths
        assert report.duplicates == reports[0].duplicates
        assert report.columns == reports[0].columns
        assert (report.rows, report.problems.rows_refused) == (50, 0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 12), max_size=60))
def test_duplicates_are_those_that_a_dictionary_finds(keys: list[int]) -> None:
    groups = defaultdict(list)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpubloom.datasets.inspection._RUN", 7)
        patch.setattr("gpubloom.datasets.inspection._READ_RECORDS", 2)
        with DuplicateFinder(keep=100, rows_shown=100) as finder:
            for row, key in enumerate(keys, 1):
                finder.add(key.to_bytes(8, "big"), row)
                groups[key].append(row)
            found = finder.result()
    expected = sorted(tuple(rows) for rows in groups.values() if len(rows) > 1)
    assert found.first == tuple(expected)
    assert found.repeated == sum(len(rows) - 1 for rows in expected)


def test_outer_space_line_ends_and_composition_do_not_make_examples_different() -> None:
    assert Example.plain(" Café\r\nx\n").digest() == Example.plain("Cafe\u0301\nx").digest()
    assert Example.plain("a b").digest() != Example.plain("a  b").digest()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(min_size=8, max_size=8)), st.floats(0, 0.99), st.integers(-5, 5))
def test_a_split_depends_on_nothing_but_the_example_and_the_seed(
    digests: list[bytes], fraction: float, seed: int
) -> None:
    split = Split(fraction, seed)
    for digest in digests:
        assert split.of(digest) == Split(fraction, seed).of(digest)
        # A larger share holds out the same ones and more.
        if split.of(digest) == "eval":
            assert Split(min(0.999, fraction + 0.1), seed).of(digest) == "eval"


def test_a_split_holds_out_about_its_share_and_another_seed_holds_out_others() -> None:
    digests = [Example.plain(str(number)).digest() for number in range(10_000)]
    held = {digest for digest in digests if Split(0.1, 0).of(digest) == "eval"}
    others = {digest for digest in digests if Split(0.1, 1).of(digest) == "eval"}
    assert 900 < len(held) < 1_100
    assert len(held & others) < 200
    with raises(ValueError, code="invalid_eval_fraction"):
        Split(1.0)


@given(st.lists(st.integers(0, 99_999), min_size=1))
@settings(max_examples=50, deadline=None)
def test_lengths_add_up(lengths: list[int]) -> None:
    counter = LengthCounter("tokens", limit=1_000)
    for row, length in enumerate(lengths, 1):
        counter.add(row, length, length // 2)
    found = counter.result()
    assert found.total == sum(lengths)
    assert found.longest[0][1] == max(lengths)
    assert found.too_long == sum(length > 1_000 for length in lengths)
    for bar in found.histogram:
        assert bar.rows == sum(bar.begin <= length < bar.end for length in lengths)
    ordered = sorted(lengths)
    assert found.median == ordered[-(-len(lengths) // 2) - 1]
    assert found.percentile_95 == ordered[math.ceil(0.95 * len(lengths)) - 1]


def test_conversion_writes_messages_and_names_what_it_could_not(tmp_path: Path) -> None:
    rows = [{"prompt": f"q{number}", "completion": f"é{number}"} for number in range(200)]
    path = write_table(tmp_path / "a.csv", [*rows, {"prompt": "q", "completion": ""}])
    source = Source.open(path)
    mapping = inspect(source).mapping
    assert mapping is not None
    target, held_out = tmp_path / "train.jsonl", tmp_path / "eval.jsonl"
    done = convert(source, mapping, target, eval_target=held_out, split=Split(0.2, 3))
    assert (done.train + done.eval, done.problems.rows_refused) == (200, 1)
    assert done.problems.first[0].line == 202
    assert 20 < done.eval < 60
    report = inspect(Source.open(target))
    assert report.mapping is not None
    assert (report.mapping.format, report.examples) == ("messages", done.train)
    written = [row["messages"][0]["content"] for file in (target, held_out) for row in values(file) if row]
    assert sorted(written) == sorted(row["prompt"] for row in rows)
    # Appending moves nobody.
    longer = write_table(tmp_path / "b.csv", [{"prompt": "new", "completion": "new"}, *rows])
    convert(Source.open(longer), mapping, tmp_path / "t", eval_target=tmp_path / "e", split=Split(0.2, 3))
    assert set(held_out.read_text().splitlines()) <= set((tmp_path / "e").read_text().splitlines())


def test_a_conversion_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    source = Source.open(write_jsonl(tmp_path / "a.jsonl", [{"text": "a"}]))
    with raises(ValueError, code="would_overwrite"):
        convert(source, Mapping("text", {"text": "text"}), tmp_path / "a.jsonl")
    with raises(ValueError, code="cannot_write"):
        convert(source, Mapping("text", {"text": "text"}), tmp_path / "no folder" / "b.jsonl")
    with raises(ValueError, code="cannot_write", match="is a folder"):
        convert(source, Mapping("text", {"text": "text"}), tmp_path)
    with pytest.raises(KeyError):
        convert(source, Mapping("text", {}), tmp_path / "b.jsonl")
    assert [file.name for file in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_preview_shows_raw_rows_pieces_and_problems(tmp_path: Path) -> None:
    rows = [{"prompt": f"q{number}", "completion": f"a{number}"} for number in range(30)]
    source = Source.open(write_jsonl(tmp_path / "a.jsonl", [*rows, {"prompt": "q"}, []]))
    mapping = Mapping("prompt_completion", {"prompt": "prompt", "completion": "completion"})
    page = preview(source, mapping=mapping, offset=30, limit=10)
    assert [row.number for row in page.rows] == [31, 32]
    assert page.rows[0].problem == "has no 'completion'"
    assert (page.rows[1].raw, page.rows[1].line) == ("[]", 32)
    first = preview(source, mapping=mapping, limit=1).rows[0]
    assert [(piece.text, piece.trained) for piece in first.pieces] == [
        ("user: q0\nassistant: ", False),
        ("a0\n", True),
    ]
    assert preview(source, mapping=mapping, offset=1960, limit=20).rows == ()

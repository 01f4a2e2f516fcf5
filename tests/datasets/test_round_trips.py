"""Rows written to a file and read again are the same rows, in every format and encoding."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubloom.datasets import RowIndex, Source, build_index
from tests.datasets.files import (
    ENCODINGS,
    read,
    values,
    write_json,
    write_jsonl,
    write_parquet,
    write_table,
)

few = settings(max_examples=15, deadline=None)


def characters(encoding: str) -> "st.SearchStrategy[str]":
    if encoding == "latin-1":
        # Letters whose bytes cannot be taken for UTF-8, which is what makes a file Latin-1.
        return st.text(st.sampled_from("abc \té\xe4\xfc\xdf'\"\\,;|{}[]\r\n"), max_size=30)
    # Zero bytes mark binary files; half surrogates are no characters.
    return st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30) | st.text(
        st.sampled_from(' ,;"\n\r\t\\{}[]a\u2028\u0a0a\u010a\u0a0d\U0001f600'), max_size=30
    )


def json_rows(encoding: str) -> "st.SearchStrategy[list[dict[str, Any]]]":
    text = characters(encoding)
    leaf = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text
    value = st.recursive(
        leaf,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
        max_leaves=5,
    )
    return st.lists(st.dictionaries(text, value, max_size=4), min_size=1, max_size=6)


def surely(encoding: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Latin-1 can only be told from UTF-8 by its letters: one more row makes sure that there are some."""
    return [*rows, {"a": "é"}] if encoding == "latin-1" else rows


@pytest.mark.parametrize("encoding", ENCODINGS)
@few
@given(data=st.data())
def test_json_lines(encoding: str, data: st.DataObject) -> None:
    rows = surely(encoding, data.draw(json_rows(encoding)))
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    with tempfile.TemporaryDirectory() as folder:
        path = write_jsonl(Path(folder) / "a.jsonl", rows, encoding, end)
        assert values(path) == rows
        assert [row.line for row in read(path)] == list(range(1, len(rows) + 1))


@pytest.mark.parametrize("encoding", ENCODINGS)
@few
@given(data=st.data())
def test_json_arrays(encoding: str, data: st.DataObject) -> None:
    rows = surely(encoding, data.draw(json_rows(encoding)))
    indent = data.draw(st.sampled_from([None, 1]))
    with tempfile.TemporaryDirectory() as folder:
        path = write_json(Path(folder) / "a.json", rows, encoding, indent)
        assert values(path) == rows


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize("encoding", ENCODINGS)
@few
@given(data=st.data())
def test_tables(encoding: str, suffix: str, data: st.DataObject) -> None:
    field = characters(encoding)
    names = data.draw(st.lists(st.sampled_from(["a", "b b", "c,c", 'd"d', "text"]), min_size=1, unique=True))
    drawn = data.draw(st.lists(st.tuples(*[field] * len(names)), min_size=1, max_size=10))
    rows = [dict(zip(names, row, strict=True)) for row in drawn]
    if encoding == "latin-1":
        rows.append(dict.fromkeys(names, "é"))
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    with tempfile.TemporaryDirectory() as folder:
        path = write_table(Path(folder) / f"a{suffix}", rows, encoding, end)
        assert values(path, delimiter="\t" if suffix == ".tsv" else ",") == rows


@pytest.mark.parametrize("encoding", ENCODINGS)
@few
@given(data=st.data())
def test_lines_of_text(encoding: str, data: st.DataObject) -> None:
    line = characters(encoding).map(lambda text: text.replace("\n", "").replace("\r", ""))
    lines = data.draw(st.lists(line.filter(lambda text: text.strip()), min_size=1, max_size=6))
    if encoding == "latin-1":
        lines.append("é")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.txt"
        text = "\r\n".join(lines)
        path.write_bytes(
            b"\xfe\xff" + text.encode("utf-16-be")
            if encoding == "utf-16-be-marked"
            else text.encode(encoding)
        )
        assert values(path, text_rows="lines") == [{"text": line} for line in lines]


@few
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "text": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
                "number": st.none() | st.integers(-(2**63), 2**63 - 1),
                "share": st.none() | st.floats(allow_nan=False),
                "turns": st.lists(
                    st.fixed_dictionaries({"role": st.just("user"), "content": st.text("ab\n", max_size=5)}),
                    max_size=3,
                ),
            }
        ),
        min_size=1,
        max_size=6,
    ),
    group=st.integers(1, 5),
)
def test_parquet(rows: list[dict[str, Any]], group: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_parquet(Path(folder) / "a.parquet", rows, row_group_size=group)
        assert values(path) == rows


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be-marked"])
@few
@given(data=st.data())
def test_reading_from_any_row_on_gives_the_rows_from_there_on(
    suffix: str, encoding: str, data: st.DataObject
) -> None:
    drawn = data.draw(st.lists(characters(encoding), min_size=1, max_size=10))
    rows = [{"text": text, "number": str(number)} for number, text in enumerate(drawn)]
    write = {".jsonl": write_jsonl, ".json": write_json, ".csv": write_table}[suffix]
    with tempfile.TemporaryDirectory() as folder:
        source = Source.open(write(Path(folder) / f"a{suffix}", rows, encoding))
        whole = list(source.rows())
        index = build_index(source)
        for row in whole:
            # Every row as its own entry: a finer index than the one that is kept.
            fine = RowIndex.empty()
            fine.add(row)
            start = fine.start_for(row.number)
            assert list(source.rows(start)) == whole[row.number - 1 :]
        assert index.rows == len(rows)

"""Files as they really come: a correct reading or a report with line numbers, and never a crash."""

import gzip
import json
import zipfile
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from gpubloom.datasets import NotADataset, Source, inspect, tables
from tests.datasets.files import read, values, write_jsonl, write_parquet


def refused(path: Path) -> str:
    with pytest.raises(NotADataset) as refusal:
        Source.open(path)
    return str(refusal.value)


def problems(path: Path) -> list[tuple[int | None, str]]:
    return [(row.line, row.problem) for row in read(path) if row.problem is not None]


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".tsv", ".txt", ".parquet"])
def test_an_empty_file_is_refused_in_a_sentence(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.touch()
    assert refused(path) == f"a{suffix} is empty."


def test_a_file_with_only_a_byte_order_mark_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf")
    assert "only a byte order mark" in refused(path)


def test_a_missing_file_and_another_kind_of_file_are_named(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refused(tmp_path / "a.jsonl")
    assert ".jsonl .json .csv .tsv .txt .parquet" in refused(tmp_path / "a.docx")


def test_a_zip_bomb_named_csv_is_refused_without_unpacking(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", b"0" * 50_000_000)
    assert (
        refused(path)
        == "a.csv is a zip archive (or an Excel workbook), not .csv data. Unpack the file first."
    )


def test_a_gzip_file_named_jsonl_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(gzip.compress(b"{}" * 1_000))
    assert "gzip archive" in refused(path)


def test_parquet_under_another_name_and_another_file_named_parquet_are_recognised(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", [{"text": "a"}])
    assert ".parquet" in refused(path.rename(tmp_path / "a.csv"))
    other = tmp_path / "b.parquet"
    other.write_text("text\n")
    assert "does not begin with PAR1" in refused(other)
    other.write_bytes(b"PAR1" + b"x" * 100 + b"PAR1")
    assert "cannot be read as parquet" in refused(other)


def test_a_parquet_file_cut_in_its_data_reports_the_rows(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", [{"text": f"{number:09d}"} for number in range(5_000)])
    content = bytearray(path.read_bytes())
    content[4:2_000] = b"\xff" * 1_996
    path.write_bytes(content)
    rows = read(path)
    assert rows[-1].problem is not None
    assert "cannot be read" in rows[-1].problem


def test_zero_bytes_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("no mark", encoding="utf-16-le")
    assert "UTF-16 without a byte order mark" in refused(path)
    assert values(path, encoding="utf-16-le") == [{"text": "no mark"}]


def test_windows_1252_is_an_announced_fallback(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("prompt,completion\nCafé?,Déjà vu\n".encode("latin-1"))
    source = Source.open(path)
    assert [row.values for row in source.rows()] == [{"prompt": "Café?", "completion": "Déjà vu"}]
    assert any("Windows-1252" in note for note in source.notes)


def test_one_broken_character_in_utf8_costs_one_line_and_not_the_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = ['{"text": "Grüße aus München"}\n'.encode()] * 3
    path.write_bytes(lines[0] + b'{"text": "\xff"}\n' + lines[1])
    rows = read(path)
    assert [row.values for row in rows] == [
        {"text": "Grüße aus München"},
        None,
        {"text": "Grüße aus München"},
    ]
    assert (rows[1].line, rows[1].problem) == (2, "is not valid UTF-8 at byte 11 (invalid start byte)")


def test_a_50_mb_line_is_reported_and_the_rows_around_it_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n{"text": "' + "x" * 50_000_000 + '"}\n{"text": "b"}\n')
    rows = read(path)
    assert [row.line for row in rows] == [1, 2, 3]
    assert rows[1].problem == "is 50.0 MB long, above the limit of 16.8 MB per row"
    assert [row.values for row in (rows[0], rows[2])] == [{"text": "a"}, {"text": "b"}]


def test_a_50_mb_element_of_an_array_is_reported_and_those_around_it_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    # Backslashes and brackets in the string: the end must be found all the same.
    long = "\\" * 20_000_001 + '"]}' * 3_000_000
    path.write_text(json.dumps([{"text": "a"}, {"text": long}, {"text": "b"}]))
    rows = read(path)
    assert len(rows) == 3
    assert "MB long" in str(rows[1].problem)
    assert [row.values for row in (rows[0], rows[2])] == [{"text": "a"}, {"text": "b"}]


def test_a_15_mb_row_is_read(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "x" * 15_000_000}])
    assert [len(row["text"]) for row in values(path) if row] == [15_000_000]


def test_json_lines_report_what_is_no_row_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = ['{"a": 1}', "", "{", "[1]", '"text"', "null", "[" * 100_000, "9" * 5_000, '{"a": 2}']
    path.write_text("\r\n".join(lines))
    found = problems(path)
    assert [line for line, _ in found] == [3, 4, 5, 6, 7, 8]
    said = [reason for _, reason in found]
    assert said[0].startswith("is not JSON")
    assert said[1] == "is a list, not a JSON object with columns"
    assert said[2].startswith("is a text")
    assert said[3].startswith("is nothing")
    assert "nested too deeply" in said[4]
    assert inspect(Source.open(path)).blank_lines == 1


def test_a_broken_element_of_an_array_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[\n{"a": 1},\n{"a": oops},\n7,\n{"a": [{}, "]"]}\n] trailing')
    rows = read(path)
    assert [(row.line, row.values) for row in rows if row.values] == [(2, {"a": 1}), (5, {"a": [{}, "]"]})]
    assert [line for line, _ in problems(path)] == [3, 4, 6]


def test_a_bracket_that_closes_nothing_is_reported_and_passed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"a": 1}},\n{"a": 2}]')
    assert [row.values for row in read(path)] == [{"a": 1}, None, {"a": 2}]


def test_an_array_that_is_cut_off_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"a": 1}, {"a": 2')
    assert read(path)[0].values == {"a": 1}
    assert "the array is not closed with ]" in problems(path)[-1][1]


def test_json_lines_named_json_and_a_single_object_are_read_and_announced(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": 1}\n{"a": 2}\n')
    assert values(path) == [{"a": 1}, {"a": 2}]
    assert "like .jsonl" in Source.open(path).notes[0]
    path.write_text('{\n"a": [1,\n 2]}\n')
    assert values(path) == [{"a": [1, 2]}]
    assert "one row" in Source.open(path).notes[0]


def test_a_table_row_with_too_few_fields_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('a,b\n"one\nline",2\n3\n4,5\n')
    rows = read(path)
    assert [row.line for row in rows] == [2, 4, 5]
    assert rows[0].values == {"a": "one\nline", "b": "2"}
    assert rows[1].problem == "has 1 fields, but the header has 2 columns"


def test_a_quote_left_open_costs_its_line_and_not_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('a,b\n1,2\n"open,3\n4,5\n6,7\n')
    rows = read(path)
    assert [(row.line, row.values) for row in rows if row.values] == [
        (2, {"a": "1", "b": "2"}),
        (4, {"a": "4", "b": "5"}),
        (5, {"a": "6", "b": "7"}),
    ]
    assert problems(path) == [(3, "opens a quote that is never closed")]


def test_endless_open_quotes_end_with_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + '"open,x\n' * 2_001)
    assert len(problems(path)) == 2_001
    monkeypatch.setattr(tables, "_MOST_READ_AGAIN", 1_000)
    assert "the rest of the file is ignored" in problems(path)[-1][1]
    assert len(problems(path)) < 2_001


def test_quotes_inside_a_field_are_not_silently_removed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('a,b\n"Hello" she said,2\n3,4\n')
    assert problems(path) == [(2, "has characters after a closing quote; write a quote inside a field twice")]


def test_a_header_with_two_equal_names_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b,a\n1,2,3\n")
    assert "Two columns are called 'a'" in refused(path)


def test_semicolons_are_recognised_and_announced(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('prompt;completion\n"1;2";b,c\n')
    assert values(path) == [{"prompt": "1;2", "completion": "b,c"}]
    assert "The columns are separated by semicolons." in Source.open(path).notes


def test_blank_lines_separate_paragraphs_of_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\r\ntwo\r\n\r\n \r\nthree")
    rows = read(path)
    assert [(row.line, row.values) for row in rows] == [(1, {"text": "one\ntwo"}), (5, {"text": "three"})]
    assert "Blank lines separate the rows." in Source.open(path).notes
    assert [row.line for row in read(path, text_rows="lines")] == [1, 2, 5]


def test_half_a_surrogate_pair_is_a_problem_of_its_row(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "\\ud83d"}\n{"text": "fine"}\n')
    report = inspect(Source.open(path))
    assert report.examples == 1
    assert (
        report.problems.first[0].reason
        == "contains an incomplete surrogate pair, which is not a valid character"
    )


@pytest.mark.parametrize("nested", [False, True])
def test_a_parquet_bomb_is_reported_row_by_row_and_never_held(tmp_path: Path, nested: bool) -> None:
    # Ten thousand rows that point at one text: 200 kB on disk, 200 GB once written out.
    pointers = pyarrow.array([0] * 10_000, pyarrow.int32())
    long = pyarrow.DictionaryArray.from_arrays(pointers, ["x" * 20_000_000])
    texts = long
    if nested:
        offsets = pyarrow.array(range(10_001), pyarrow.int32())
        texts = pyarrow.ListArray.from_arrays(offsets, long)
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), path, dictionary_pagesize_limit=1 << 30)
    rows = read(path)
    assert len(rows) == 10_000
    assert {row.problem for row in rows} == {"is 20.0 MB long, above the limit of 16.8 MB per row"}

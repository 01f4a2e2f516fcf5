"""The index beside a file leads to any page by a short way, and is never believed about another file."""

import os
from pathlib import Path
from typing import Any

import pytest

from gpubloom.datasets import Row, RowIndex, Source, build_index, index_path, inspect, preview
from gpubloom.datasets.rows import Start
from tests.datasets.files import write_json, write_jsonl, write_parquet, write_table

ROWS = [{"text": f"row {number} " + "x" * (number % 50)} for number in range(1, 3_001)]


def write(path: Path) -> Source:
    match path.suffix:
        case ".csv" | ".tsv":
            return Source.open(write_table(path, ROWS))
        case ".json":
            return Source.open(write_json(path, ROWS))
        case ".parquet":
            return Source.open(write_parquet(path, ROWS, row_group_size=500))
        case ".txt":
            path.write_text("\n\n".join(row["text"] for row in ROWS))
            return Source.open(path)
        case _:
            return Source.open(write_jsonl(path, ROWS))


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".txt", ".parquet"])
@pytest.mark.parametrize("page", [1, 2, 77, 150])
def test_every_page_is_the_one_that_reading_from_the_start_gives(
    tmp_path: Path, suffix: str, page: int
) -> None:
    found = preview(write(tmp_path / f"a{suffix}"), mapping=None, offset=(page - 1) * 20, limit=20)
    assert [row.raw for row in found.rows] == ROWS[(page - 1) * 20 : page * 20]
    assert [row.number for row in found.rows] == list(range((page - 1) * 20 + 1, page * 20 + 1))


def test_an_inspection_leaves_the_index_that_pages_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "a.jsonl")
    inspect(source)
    index = RowIndex.load(source)
    assert index is not None
    assert index == build_index(source)
    read: list[Row] = []
    rows = Source.rows

    def counted(self: Source, start: Start | None = None, *arguments: Any, **options: Any) -> Any:
        for row in rows(self, start, *arguments, **options):
            read.append(row)
            yield row

    monkeypatch.setattr(Source, "rows", counted)
    page = preview(source, mapping=None, offset=2980, limit=20)
    assert page.total == 3_000
    assert len(read) < 300


def test_long_rows_get_an_entry_each(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "x" * 1_500_000} for _ in range(5)])
    index = build_index(Source.open(path))
    assert list(index.numbers) == [1, 2, 3, 4, 5]


def test_an_index_of_a_file_that_changed_or_is_read_otherwise_counts_for_nothing(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv")
    build_index(source).save(source)
    assert RowIndex.load(source) is not None
    assert RowIndex.load(Source.open(source.path, delimiter=";")) is None
    assert RowIndex.load(Source.open(source.path, encoding="latin-1")) is None
    os.utime(source.path, ns=(1, 1))
    assert RowIndex.load(source) is None


@pytest.mark.parametrize(
    "content", [b"", b"{}\n", b"[]\n", b"7\n", b"\xff\xfe", b'{"rows": 1, "entries": 9}\n']
)
def test_a_broken_index_is_built_anew(tmp_path: Path, content: bytes) -> None:
    source = write(tmp_path / "a.jsonl")
    index_path(source.path).write_bytes(content)
    assert RowIndex.load(source) is None
    assert preview(source, mapping=None, offset=2980, limit=20).total == 3_000


def test_a_folder_that_cannot_be_written_only_costs_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "a.jsonl")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(Path, "replace", refuse)
    assert build_index(source).save(source) is False
    assert [file.name for file in tmp_path.iterdir()] == ["a.jsonl"]
    assert preview(source, mapping=None, offset=2980, limit=20).rows[0].number == 2_981

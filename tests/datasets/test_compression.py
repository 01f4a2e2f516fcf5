"""Compressed files and the encodings of text: read as they are, refused with a sentence when broken."""

import gzip
import json
import tracemalloc
import zipfile
from pathlib import Path

import pyarrow
import pytest

from gpubloom.datasets import NotADataset, Source, inspect, preview
from gpubloom.datasets.lines import LONGEST_ROW_BYTES
from tests.datasets.files import values
from tests.errors import raises

ROWS = [{"prompt": f"question {number}", "completion": "é" * 300} for number in range(2_000)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def compressed(folder: Path, suffix: str) -> Path:
    path = folder / f"rows.jsonl{suffix}"
    if suffix == ".gz":
        path.write_bytes(gzip.compress(LINES))
    elif suffix == ".zst":
        with pyarrow.CompressedOutputStream(str(path), "zstd") as file:
            file.write(LINES)
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("README.txt", "about")
            archive.writestr("__MACOSX/rows.jsonl", "x")
            archive.writestr("folder/rows.jsonl", LINES)
    return path


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".zip"])
def test_a_compressed_file_has_the_rows_of_what_it_holds(tmp_path: Path, suffix: str) -> None:
    path = compressed(tmp_path, suffix)
    assert values(path) == ROWS
    report = inspect(Source.open(path))
    assert (report.rows, report.examples) == (2_000, 2_000)
    page = preview(Source.open(path), mapping=report.mapping, offset=1_500, limit=2)
    assert [row.raw for row in page.rows] == ROWS[1_500:1_502]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_few_kilobytes_that_unpack_to_one_huge_row_are_read_in_pieces(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"bomb.jsonl{suffix}"
    begin, piece, end = b'{"prompt": "', b"a" * (1 << 20), b'", "completion": "b"}\n'
    codec = "gzip" if suffix == ".gz" else "zstd"
    with pyarrow.CompressedOutputStream(str(path), codec) as file:
        for part in (begin, *[piece] * 200, end, b'{"prompt": "x", "completion": "y"}\n'):
            file.write(part)
    assert path.stat().st_size < 1 << 20
    tracemalloc.start()
    try:
        huge, small = Source.open(path).rows()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert huge.problem is not None
    assert small.values == {"prompt": "x", "completion": "y"}
    # The longest row that is read, a few times; not the 200 MB of this one.
    assert most < 6 * LONGEST_ROW_BYTES


def test_an_archive_with_several_data_files_or_broken_ones_is_refused(tmp_path: Path) -> None:
    several = tmp_path / "several.zip"
    with zipfile.ZipFile(several, "w") as archive:
        archive.writestr("a.csv", "x")
        archive.writestr("b.csv", "x")
    with raises(NotADataset, code="archive_file", match="2 data files"):
        Source.open(several)
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(LINES)[:-200])
    with raises(NotADataset, code="archive_file", match="cut.jsonl.gz cannot be unpacked"):
        list(Source.open(cut).rows())
    nested = tmp_path / "nested.jsonl.gz"
    nested.write_bytes(gzip.compress(gzip.compress(b"{}")))
    with raises(NotADataset, code="archive_file"):
        Source.open(nested)


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_recognised(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(LINES.decode().encode(codec))
    source = Source.open(path)
    assert source.encoding is not None
    assert source.encoding.codec == codec
    assert "without a byte order mark" in source.notes[0]
    assert values(path) == ROWS


def test_a_binary_file_is_still_none(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_bytes(bytes(range(256)) * 20)
    with raises(NotADataset, code="binary_file"):
        Source.open(path)


def test_windows_1252_is_recognised_and_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("prompt,completion\n“naïve” – yes,œuvre €5\n".encode("cp1252"))
    source = Source.open(path)
    assert "Windows-1252" in source.notes[0]
    assert values(path) == [{"prompt": "“naïve” – yes", "completion": "œuvre €5"}]
    assert values(path, encoding="windows-1252") == values(path)
    path.write_bytes(b"prompt,completion\n\x81\xe9,b\n")
    assert "Latin-1" in Source.open(path).notes[0]

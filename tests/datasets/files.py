"""Writes rows the way people's tools write them, in every format and encoding."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from gpubloom.datasets import Row, Source

ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-be-marked", "latin-1")


def encode(text: str, encoding: str) -> bytes:
    if encoding == "utf-16-be-marked":
        return b"\xfe\xff" + text.encode("utf-16-be")
    return text.encode(encoding)


def write_jsonl(path: Path, rows: list[Any], encoding: str = "utf-8", end: str = "\n") -> Path:
    text = "".join(json.dumps(row, ensure_ascii=False) + end for row in rows)
    path.write_bytes(encode(text, encoding))
    return path


def write_json(path: Path, rows: list[Any], encoding: str = "utf-8", indent: int | None = 1) -> Path:
    path.write_bytes(encode(json.dumps(rows, ensure_ascii=False, indent=indent), encoding))
    return path


def write_table(path: Path, rows: list[dict[str, str]], encoding: str = "utf-8", end: str = "\r\n") -> Path:
    text = io.StringIO(newline="")
    delimiter = "\t" if path.suffix == ".tsv" else ","
    # Where lines end with a line feed, the writer forgets to quote a lone carriage return.
    quoting = csv.QUOTE_MINIMAL if end == "\r\n" else csv.QUOTE_ALL
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writeheader()
    writer.writerows(rows)
    path.write_bytes(encode(text.getvalue(), encoding))
    return path


def write_parquet(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, **options)
    return path


def read(path: Path, **options: Any) -> list[Row]:
    return list(Source.open(path, **options).rows())


def values(path: Path, **options: Any) -> list[dict[str, Any] | None]:
    rows = read(path, **options)
    assert [row.problem for row in rows if row.problem] == []
    return [row.values for row in rows]

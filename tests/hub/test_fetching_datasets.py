"""Datasets by id: the right files of the right split, as one file that opens."""

import io
import json
from itertools import pairwise
from pathlib import Path

import pytest

from gpubloom.datasets import Source
from gpubloom.hub.fetching import fetch_dataset, find_layout
from gpubloom.hub.problems import HubProblem
from gpubloom.hub.repositories import ANONYMOUS, RemoteFile
from tests.errors import raises
from tests.hub.fake_hub import FakeHub


def parquet(rows: list[dict[str, object]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), out)
    return out.getvalue()


def lines(rows: list[dict[str, object]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def rows_of(path: Path) -> list[object]:
    return [row.values for row in Source.open(path).rows()]


ROWS: list[dict[str, object]] = [{"prompt": f"question {n}", "completion": f"answer {n}"} for n in range(40)]


def test_shards_of_parquet_become_one_file_with_all_rows_in_order(hub: FakeHub, tmp_path: Path) -> None:
    hub.add(
        "org/data",
        {
            "data/train-00000-of-00002.parquet": parquet(ROWS[:25]),
            "data/train-00001-of-00002.parquet": parquet(ROWS[25:]),
            "data/test-00000-of-00001.parquet": parquet(ROWS[:3]),
            "dataset_infos.json": b"{}",
        },
        "dataset",
    )
    seen: list[tuple[int, int]] = []
    found = fetch_dataset("org/data", tmp_path / "d", token=ANONYMOUS, progress=lambda *at: seen.append(at))
    assert found.path.suffix == ".parquet"
    assert (found.config, found.split) == ("default", "train")
    assert rows_of(found.path) == ROWS
    assert found.notes == ("2 files were joined into one.",)
    assert list((tmp_path / "d").iterdir()) == [found.path]
    assert seen[-1][0] == seen[-1][1]
    test = fetch_dataset("org/data", tmp_path / "t", split="test", token=ANONYMOUS)
    assert rows_of(test.path) == ROWS[:3]


README = """---
license: mit
configs:
- config_name: german
  data_files:
  - split: train
    path: "de/part-*.jsonl"
  - split: test
    path: de/held_out.csv
- config_name: english
  data_files: en.jsonl
---
Text
"""


def test_the_readme_says_which_files_belong_to_which_configuration(hub: FakeHub, tmp_path: Path) -> None:
    hub.add(
        "org/data",
        {
            "README.md": README.encode(),
            "de/part-1.jsonl": lines(ROWS[:2])[:-1],
            "de/part-2.jsonl": lines(ROWS[2:4]),
            "de/held_out.csv": b"prompt,completion\na,b\n",
            "en.jsonl": lines(ROWS[4:5]),
        },
        "dataset",
    )
    german = fetch_dataset("org/data", tmp_path / "g", config="german", token=ANONYMOUS)
    assert rows_of(german.path) == ROWS[:4]
    held_out = fetch_dataset("org/data", tmp_path / "h", config="german", split="test", token=ANONYMOUS)
    assert held_out.path.suffix == ".csv"
    assert rows_of(held_out.path) == [{"prompt": "a", "completion": "b"}]
    english = fetch_dataset("org/data", tmp_path / "e", config="english", token=ANONYMOUS)
    assert rows_of(english.path) == ROWS[4:5]
    with raises(HubProblem, code="no_data", match="german, english"):
        fetch_dataset("org/data", tmp_path / "x", token=ANONYMOUS)
    with raises(HubProblem, code="no_data"):
        fetch_dataset("org/data", tmp_path / "x", config="german", split="dev", token=ANONYMOUS)
    assert not (tmp_path / "x").exists()


def test_files_of_other_kinds_are_joined_as_json_lines_and_lost_rows_are_told(
    hub: FakeHub, tmp_path: Path
) -> None:
    hub.add(
        "org/data",
        {
            "train-1.csv": b"prompt,completion\na,b\n",
            "train-2.csv": b'prompt,completion\nc,"d\nd"\nbroken,row,with,too,many\n',
        },
        "dataset",
    )
    found = fetch_dataset("org/data", tmp_path / "d", token=ANONYMOUS)
    assert found.path.suffix == ".jsonl"
    assert rows_of(found.path) == [{"prompt": "a", "completion": "b"}, {"prompt": "c", "completion": "d\nd"}]
    assert "1 unreadable rows of train-2.csv are left out" in found.notes[1]


def test_parquet_shards_with_other_columns_are_joined_as_json_lines(hub: FakeHub, tmp_path: Path) -> None:
    hub.add(
        "org/data",
        {"a.parquet": parquet([{"text": "x"}]), "b.parquet": parquet([{"text": "y", "n": 1}])},
        "dataset",
    )
    found = fetch_dataset("org/data", tmp_path / "d", token=ANONYMOUS)
    assert rows_of(found.path) == [{"text": "x"}, {"text": "y", "n": 1}]


def test_a_dataset_made_by_a_script_is_refused(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("org/data", {"data.py": b"import os", "README.md": b"# data"}, "dataset")
    with raises(HubProblem, code="no_data") as caught:
        fetch_dataset("org/data", tmp_path / "d", token=ANONYMOUS)
    assert caught.value.code == "no_data"


_REPEATED = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in pairwise("abcdefghijkl")
)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "configs",
    [
        "configs: [{data_files: [{split: train, path: 5}, {split: 2, path: [1, null]}]}]",
        "configs: [{config_name: [x], data_dir: {}, data_files: 7}]",
        "configs: [{data_files: {train: {}}}, 5, null]",
        _REPEATED + "configs: [{config_name: *l, data_dir: *l, data_files: [{split: *l, path: *l}]}]",
        "configs: &a [{config_name: *a}]",
        "a: 2024-99-99",
        "? {a: b}\n: c",
        "[" * 5_000,
    ],
)
def test_a_readme_that_nobody_can_read_breaks_nothing(configs: str) -> None:
    files = [RemoteFile(f"data/{name}.jsonl", 1, None, None) for name in ("train", "test")]
    by_name = {"default": {"train": [files[0]], "test": [files[1]]}}
    # What a README describes counts, also when no file is among it.
    assert find_layout(files, f"---\n{configs}\n---\n") in ({}, by_name)

"""Which files a data path means."""

from pathlib import Path

import pytest

from gpubloom.plan import DataConfig, estimate_tokens, find_files
from tests.errors import raises


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "b.txt").write_text("bb")
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "deep" / "c.md").write_text("ccc")
    (tmp_path / ".hidden").write_text("secret")
    return tmp_path


def test_a_folder_means_all_its_visible_files_in_a_fixed_order(folder: Path) -> None:
    assert [file.name for file in find_files(str(folder))] == ["a.txt", "b.txt", "c.md"]


def test_a_glob_means_its_matches_in_a_fixed_order(folder: Path) -> None:
    assert [file.name for file in find_files(str(folder / "*.txt"))] == ["a.txt", "b.txt"]
    assert [file.name for file in find_files(str(folder / "**" / "*.md"))] == ["c.md"]


def test_what_is_not_there_is_named(folder: Path) -> None:
    with raises(ValueError, code="data_not_found", match=r"gone\.txt"):
        find_files(str(folder / "gone.txt"))
    with raises(ValueError, code="data_not_found", match=r"\*\.gone"):
        find_files(str(folder / "*.gone"))


def test_tokens_are_estimated_from_sizes(folder: Path) -> None:
    assert estimate_tokens(DataConfig(train_path=str(folder), eval_fraction=0.0)) == 6
    (folder / "t.bin").write_bytes(bytes(400))
    assert estimate_tokens(DataConfig(train_path=str(folder / "t.bin"), eval_fraction=0.5)) == 100


def test_tokens_of_examples_are_estimated_from_the_size_of_their_one_file(tmp_path: Path) -> None:
    (tmp_path / "chats.jsonl").write_bytes(bytes(7_000))
    (tmp_path / "chats.parquet").write_bytes(bytes(3_000))
    for name in ("chats.jsonl", "chats.parquet"):
        data = DataConfig(kind="examples", train_path=str(tmp_path / name), eval_fraction=0.5)
        assert estimate_tokens(data) == 1_000

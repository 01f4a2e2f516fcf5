"""Which files a data path means."""

from pathlib import Path

import pytest

from gpubloom.plan import DataConfig, data_files, estimate_tokens, find_files
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


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("image.png", b"\x89PNG\0\0" * 500),
        ("utf-16.txt", "text".encode("utf-16") * 500),
        ("latin.txt", b"a" * 300_000 + "größe".encode("latin-1")),
        ("tokens.bin", bytes(4_000)),
    ],
)
def test_files_of_a_folder_that_training_skips_are_not_counted(
    folder: Path, name: str, content: bytes
) -> None:
    (folder / name).write_bytes(content)
    for path in (folder, folder / "**"):
        assert estimate_tokens(DataConfig(train_path=str(path), eval_fraction=0.0)) == 6


def test_long_text_is_counted_whole_by_its_beginning(tmp_path: Path) -> None:
    # Its first mebibyte ends within a character.
    (tmp_path / "a.bin").write_text("a" + "é" * 1_500_000, encoding="utf-8")
    (tmp_path / "b.txt").write_text("b")
    assert estimate_tokens(DataConfig(train_path=str(tmp_path), eval_fraction=0.0)) == 3_000_002


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"ELF\0", "binary_file"),
        (b"a" * 300_000 + b"\xe4" + b"a", "not_utf8"),
        (b"a" * 3_000_000 + b"\xe4" + b"a", "not_utf8"),
        ("é".encode() * 1_000_000 + b"\xc3", "not_utf8"),
    ],
)
def test_a_file_that_training_refuses_is_refused_by_its_plan(
    tmp_path: Path, content: bytes, code: str
) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with raises(ValueError, code=code, match=r"a\.txt"):
        estimate_tokens(DataConfig(train_path=str(tmp_path / "a.txt")))
    with raises(ValueError, code="data_without_text"):
        estimate_tokens(DataConfig(train_path=str(tmp_path)))


def test_a_text_that_has_changed_is_read_again(tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    data = DataConfig(train_path=str(text), eval_fraction=0.0)
    text.write_bytes(b"a" * 2_000_000)
    assert estimate_tokens(data) == 2_000_000
    text.write_bytes(b"a" * 2_000_000 + b"\xe4")
    with raises(ValueError, code="not_utf8"):
        estimate_tokens(data)


def test_text_too_long_to_read_for_a_plan_is_judged_by_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "_READ_BYTES", 3_000_000)
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_bytes(b"a" * 2_000_000 + b"\xe4")
    assert estimate_tokens(DataConfig(train_path=str(tmp_path), eval_fraction=0.0)) == 4_000_002
    with raises(ValueError, code="not_utf8"):
        estimate_tokens(DataConfig(train_path=str(tmp_path / "a.txt"), eval_fraction=0.0))


@pytest.mark.parametrize(
    ("content", "code"), [(None, "data_not_found"), (b"", "data_empty"), (b"\xe4", "not_utf8")]
)
def test_evaluation_data_that_training_refuses_is_refused_by_its_plan(
    folder: Path, content: bytes | None, code: str
) -> None:
    if content is not None:
        (folder / "eval.text").write_bytes(content)
    with raises(ValueError, code=code, match=r"eval\.text"):
        estimate_tokens(DataConfig(train_path=str(folder / "a.txt"), eval_path=str(folder / "eval.text")))


def test_tokens_of_examples_are_estimated_from_the_size_of_their_one_file(tmp_path: Path) -> None:
    (tmp_path / "chats.jsonl").write_bytes(bytes(7_000))
    (tmp_path / "chats.parquet").write_bytes(bytes(3_000))
    for name in ("chats.jsonl", "chats.parquet"):
        data = DataConfig(kind="examples", train_path=str(tmp_path / name), eval_fraction=0.5)
        assert estimate_tokens(data) == 1_000

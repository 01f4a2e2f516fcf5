"""From a path to batches: reading, refusing, tokenizing, and an order that can be resumed."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from gpubloom.engine import Dataset
from gpubloom.engine.data import Loader, Tokenizer, Windows
from gpubloom.engine.data.loader import eval_batches
from gpubloom.plan import DataConfig, TokenizerConfig
from tests.errors import raises

TEXT = "größe 你好 🎉 def f(x):\n\treturn  x\n"


def test_bytes_are_what_the_saved_tokenizer_gives() -> None:
    tokenizer = Tokenizer.create(TokenizerConfig(), ())
    assert list(tokenizer.encode(TEXT)) == list(TEXT.encode("utf-8")) == tokenizer._backend.encode(TEXT).ids
    assert tokenizer.decode(tokenizer.encode(TEXT).tolist()) == TEXT
    assert (tokenizer.vocab_size, tokenizer.end_of_text) == (257, 256)


def test_a_trained_bpe_is_shorter_lossless_and_the_same_every_time() -> None:
    documents = [TEXT * 20, "return f(x)\n" * 50]
    config = TokenizerConfig(kind="bpe", vocab_size=300)
    first, second = Tokenizer.create(config, documents), Tokenizer.create(config, documents)
    assert list(first.encode(TEXT)) == list(second.encode(TEXT))
    assert len(first.encode(TEXT)) < len(TEXT.encode("utf-8"))
    assert first.decode(first.encode(TEXT + "unseen ñ").tolist()) == TEXT + "unseen ñ"


def test_streamed_text_never_shows_half_a_character() -> None:
    tokenizer = Tokenizer.create(TokenizerConfig(), ())
    pieces = list(tokenizer.decode_stream(tokenizer.encode("a你🎉b").tolist()))
    assert pieces == ["a", "你", "🎉", "b"]


def test_a_folder_is_read_in_order_with_documents_closed_and_binaries_named(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("bbbb")
    (tmp_path / "a.txt").write_text("aaaa")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\0\0")
    dataset = Dataset.open(DataConfig(train_path=str(tmp_path), eval_fraction=0.0), context_length=4)
    assert dataset.train.tokens.tolist() == [*b"aaaa", 256, *b"bbbb", 256]
    assert dataset.eval is None
    assert "1 file is not UTF-8 text and was skipped (image.png)" in dataset.notes[0]


def test_a_byte_order_mark_is_not_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("aaaa", encoding="utf-8-sig")
    config = DataConfig(train_path=str(tmp_path / "t.txt"), eval_fraction=0.0)
    assert Dataset.open(config, context_length=4).train.tokens.tolist() == [*b"aaaa", 256]


@pytest.mark.parametrize(("dtype", "width"), [("uint16", 2), ("uint32", 4)])
def test_token_files_hold_little_endian_ids(tmp_path: Path, dtype: str, width: int) -> None:
    ids = np.arange(200, dtype=np.dtype(dtype).newbyteorder("<"))
    (tmp_path / "t.bin").write_bytes(ids.tobytes())
    assert (tmp_path / "t.bin").stat().st_size == 200 * width
    config = DataConfig.model_validate(
        {"train_path": str(tmp_path / "t.bin"), "token_dtype": dtype, "eval_fraction": 0}
    )
    assert Dataset.open(config, context_length=10).train.tokens.tolist() == list(range(200))


def test_the_tail_is_kept_for_evaluation(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("x" * 900 + "y" * 99)
    config = DataConfig(train_path=str(tmp_path / "t.txt"), eval_fraction=0.1)
    dataset = Dataset.open(config, context_length=8)
    assert dataset.eval is not None
    assert (len(dataset.train.tokens), len(dataset.eval.tokens)) == (900, 100)
    assert set(dataset.train.tokens.tolist()) == {ord("x")}


@pytest.mark.parametrize(
    ("name", "content", "code", "figures"),
    [
        ("empty.txt", b"", "data_empty", ""),
        ("binary.txt", b"ELF\0\0\0" * 100, "binary_file", ""),
        ("latin.txt", "größe".encode("latin-1") * 100, "not_utf8", "byte 2 is 0xf6"),
        ("windows.txt", "größe".encode("utf-16") * 100, "not_utf8", "UTF-16"),
        ("short.txt", b"hello", "data_too_short", "6 tokens"),
        ("empty.bin", b"", "data_empty", ""),
        ("odd.bin", b"123", "invalid_token_file", "uint16"),
        ("large.bin", b"\xff\xff" * 100, "token_out_of_range", "65535.* 257 "),
    ],
)
def test_a_file_that_cannot_be_trained_on_is_refused_in_one_sentence(
    tmp_path: Path, name: str, content: bytes, code: str, figures: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with raises(ValueError, code=code, match=f"{name}.*{figures}"):
        Dataset.open(DataConfig(train_path=str(tmp_path / name)), context_length=16)


def test_a_folder_without_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "image.png").write_bytes(b"\x89PNG\0\0")
    with raises(ValueError, code="data_without_text"):
        Dataset.open(DataConfig(train_path=str(tmp_path)), context_length=16)


def test_a_missing_path_is_refused() -> None:
    with raises(ValueError, code="data_not_found", match="nowhere"):
        Dataset.open(DataConfig(train_path="nowhere"), context_length=16)
    with raises(ValueError, code="no_data"):
        Dataset.open(DataConfig(), context_length=16)


def windows(tokens: int, length: int = 4) -> Windows:
    return Windows(np.arange(tokens, dtype=np.uint16), length)


def starts(loader: Loader) -> list[list[int]]:
    return [batch.tokens_ABT[:, :, 0].flatten().tolist() for batch in loader.rest_of_epoch()]


def test_an_epoch_visits_every_window_once_and_targets_are_one_ahead() -> None:
    loader = Loader(windows(81), batch_size=5, accumulation=2, seed=1)
    batches = list(loader.rest_of_epoch())
    assert (loader.epoch, loader.position) == (1, 0)
    assert batches[0].tokens_ABT.shape == (2, 5, 4)
    assert all(torch.equal(batch.targets_ABT, batch.tokens_ABT + 1) for batch in batches)
    assert sorted(torch.cat([batch.tokens_ABT.flatten() for batch in batches]).tolist()) == list(range(80))


def test_the_last_batch_is_filled_up_so_that_every_batch_has_one_size() -> None:
    loader = Loader(windows(4 * 7 + 1), batch_size=4, accumulation=1, seed=0)
    batches = starts(loader)
    assert [len(batch) for batch in batches] == [4, 4]
    assert set(batches[0] + batches[1]) == {0, 4, 8, 12, 16, 20, 24}


def test_fewer_windows_than_rows_still_make_a_batch() -> None:
    loader = Loader(windows(9), batch_size=8, accumulation=1, seed=0)
    assert [len(batch) for batch in starts(loader)] == [8]


def test_order_depends_on_seed_and_epoch_alone() -> None:
    first, second = (Loader(windows(403), batch_size=5, accumulation=1, seed=3) for _ in range(2))
    epochs = [starts(first), starts(first)]
    assert epochs[0] != epochs[1]
    assert epochs == [starts(second), starts(second)]
    assert starts(Loader(windows(403), batch_size=5, accumulation=1, seed=4)) != epochs[0]


@pytest.mark.parametrize("stop_after", [1, 7, 19, 20, 21, 33])
def test_a_restored_loader_continues_with_the_very_next_batch(stop_after: int) -> None:
    def stream(loader: Loader) -> list[list[int]]:
        found: list[list[int]] = []
        while loader.epoch < 2:
            found += starts(loader)
        return found

    whole = stream(Loader(windows(403), batch_size=5, accumulation=1, seed=3))
    assert len(whole) == 40
    stopped = Loader(windows(403), batch_size=5, accumulation=1, seed=3)
    taken = 0
    while taken < stop_after:
        for _ in stopped.rest_of_epoch():
            taken += 1
            if taken == stop_after:
                break
    resumed = Loader(windows(403), batch_size=5, accumulation=1, seed=3)
    resumed.restore(stopped.state())
    assert stream(resumed) == whole[stop_after:]


def test_a_position_is_refused_by_steps_of_other_rows() -> None:
    rows = windows(403)
    saved = Loader(rows, batch_size=4, accumulation=1, seed=0, processes=2).state()
    Loader(rows, batch_size=8, accumulation=1, seed=0).restore(saved)
    with raises(ValueError, code="checkpoint_mismatch", match="8 .* 4"):
        Loader(rows, batch_size=4, accumulation=1, seed=0).restore(saved)


def test_evaluation_rows_are_spread_over_the_text() -> None:
    batches = list(eval_batches(windows(4 * 100 + 1), batch_size=4, max_batches=2))
    rows = torch.cat([batch.tokens_ABT[0, :, 0] for batch in batches]).tolist()
    assert rows[0] == 0
    assert rows[-1] == 4 * 99
    assert len(rows) == 8


def test_a_fingerprint_changes_with_the_data(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    config = DataConfig(train_path=str(path))
    path.write_text("abc " * 100)
    before = Dataset.open(config, context_length=8).fingerprint()
    assert Dataset.open(config, context_length=8).fingerprint() == before
    path.write_text("abc " * 99 + "abd ")
    assert Dataset.open(config, context_length=8).fingerprint() != before


def test_a_binary_named_bin_among_text_is_passed_over_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("aaaa")
    (tmp_path / "weights.bin").write_bytes(bytes(100))
    dataset = Dataset.open(DataConfig(train_path=str(tmp_path), eval_fraction=0.0), context_length=4)
    assert dataset.train.tokens.tolist() == [*b"aaaa", 256]
    assert "weights.bin" in dataset.notes[0]


def test_a_tokenizer_of_a_model_folder_ends_texts_its_own_way_and_keeps_what_lay_beside_it(
    tmp_path: Path,
) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    ours.mkdir()
    backend = Tokenizer.create(TokenizerConfig(), ())._backend
    backend.add_special_tokens(["</s>"])
    backend.save(str(theirs / "tokenizer.json"))
    settings = json.dumps({"eos_token": {"content": "</s>"}, "bos_token": "<s>", "model_max_length": 9})
    (theirs / "tokenizer_config.json").write_text(settings)
    (theirs / "special_tokens_map.json").write_text('{"eos_token": "a"}')
    (theirs / "chat_template.jinja").write_text("{{ messages }}")
    text = tmp_path / "text.txt"
    text.write_text("aaaa")
    config = TokenizerConfig(kind="file", path=str(theirs / "tokenizer.json"))
    data = DataConfig(train_path=str(text), eval_fraction=0.0, tokenizer=config)

    dataset = Dataset.open(data, context_length=4)

    assert dataset.train.tokens.tolist() == [*b"aaaa", 257]
    dataset.tokenizer.save(ours, context_length=4)
    assert (ours / "tokenizer_config.json").read_text() == settings
    assert (ours / "chat_template.jinja").read_text() == "{{ messages }}"


def test_a_tokenizer_may_name_its_end_in_a_file_of_special_tokens(tmp_path: Path) -> None:
    backend = Tokenizer.create(TokenizerConfig(), ())._backend
    backend.add_special_tokens(["</s>"])
    backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 9}')
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": "</s>"}')
    assert Tokenizer.load(tmp_path / "tokenizer.json").end_of_text == 257

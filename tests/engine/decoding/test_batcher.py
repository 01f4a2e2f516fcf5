"""Requests that join and leave a running batch: order, sharing, readers that leave, failures."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gpubloom.engine.decoding.batcher import Batcher
from gpubloom.engine.decoding.kv_blocks import BLOCK, KvPool
from gpubloom.engine.decoding.llama_decoder import LlamaDecoder, Piece, Rows
from gpubloom.engine.decoding.sampling import GREEDY, Sampling
from gpubloom.engine.models import TransformerLM
from gpubloom.engine.pretrained_text import PretrainedText, load_pretrained_text
from gpubloom.engine.serving.batched_answers import batch_answers
from gpubloom.plan import PRESETS
from tests.engine.serving.speakers import make_adapter
from tests.tiny_models import make_tiny_model
from tests.waiting import wait_until

NO_END: frozenset[int] = frozenset()


class Watched:
    """A decoder that notes what it computes; `before` may wait or fail."""

    def __init__(self) -> None:
        model = TransformerLM.create(PRESETS["nano"], seed=0).eval()
        self._decoder = LlamaDecoder.of_own(model)
        self.steps: list[int] = []
        self.pieces: list[tuple[int, int]] = []
        self.before: Callable[[str], None] = lambda what: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def rows(self, rows: Rows, pool: KvPool) -> Tensor:
        self.before("rows")
        self.steps.append(len(rows.tokens_B))
        return self._decoder.rows(rows, pool)

    def prompt(self, piece: Piece, pool: KvPool) -> Tensor:
        self.before("prompt")
        self.pieces.append((piece.start, len(piece.tokens_T)))
        return self._decoder.prompt(piece, pool)


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def batcher(watched: Watched) -> Iterator[Batcher]:
    decoder: Any = watched
    made = Batcher(decoder, most_rows=4, blocks=8)
    yield made
    made.close()


def ask(batcher: Batcher, prompt: list[int], tokens: int, sampling: Sampling = GREEDY) -> list[int]:
    return list(batcher.tokens(prompt, sampling, max_tokens=tokens, ends=NO_END))


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_second_request_joins_the_first_and_leaves_before_it(batcher: Batcher, watched: Watched) -> None:
    alone = ask(batcher, [1, 2, 3], 30), ask(batcher, [9, 8], 5)
    watched.steps.clear()
    said: list[list[int]] = [[], []]
    go = threading.Event()
    watched.before = lambda what: wait_until(go.is_set) if len(watched.steps) == 4 else None
    long = in_thread(lambda: said[0].extend(ask(batcher, [1, 2, 3], 30)))
    wait_until(lambda: len(watched.steps) == 4)
    short = in_thread(lambda: said[1].extend(ask(batcher, [9, 8], 5)))
    wait_until(lambda: batcher._waiting)
    go.set()
    short.join()
    long.join()
    assert (said[0], said[1]) == alone
    # 29 steps give 30 tokens; the short one took part in four of them.
    assert (len(watched.steps), watched.steps.count(2)) == (29, 4)


def test_a_conversation_that_goes_on_reads_only_what_is_new(batcher: Batcher, watched: Watched) -> None:
    prompt = list(range(20))
    said = ask(batcher, prompt, 20)
    more = [*prompt, *said, 5, 6]
    fresh = Batcher(watched._decoder, blocks=8)
    wanted = ask(fresh, more, 6)
    fresh.close()
    watched.pieces.clear()
    assert ask(batcher, more, 6) == wanted
    assert watched.pieces == [(BLOCK, len(more) - BLOCK)]


def test_prompts_take_turns_piece_by_piece(
    batcher: Batcher, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubloom.engine.decoding.batcher.PIECE", 8)
    go, begun = threading.Event(), threading.Event()

    def before(what: str) -> None:
        begun.set()
        wait_until(go.is_set)

    watched.before = before
    long = in_thread(lambda: ask(batcher, list(range(40)), 1))
    wait_until(begun.is_set)
    short = in_thread(lambda: ask(batcher, [7] * 9, 1))
    wait_until(lambda: batcher._waiting)
    go.set()
    long.join()
    short.join()
    assert watched.pieces == [(0, 8), (8, 8), (0, 8), (16, 8), (8, 1), (24, 8), (32, 8)]


def test_an_end_token_ends_and_is_not_handed_out(batcher: Batcher) -> None:
    said = ask(batcher, [1, 2, 3], 12)
    first = said.index(said[6])
    ended = list(batcher.tokens([1, 2, 3], GREEDY, max_tokens=12, ends=frozenset({said[6]})))
    assert ended == said[:first]


def test_whoever_stops_reading_leaves_and_gives_the_blocks_back(batcher: Batcher, watched: Watched) -> None:
    reading = batcher.tokens([1, 2], GREEDY, max_tokens=60, ends=NO_END)
    next(reading)
    assert batcher._allocator.available < 7
    reading.close()
    wait_until(lambda: batcher._allocator.available == 7)
    assert len(watched.steps) < 59


def test_a_request_waits_for_blocks_and_one_that_never_fits_is_refused(batcher: Batcher) -> None:
    small = Batcher(batcher._decoder, blocks=3)
    said: list[list[int]] = []
    # Two blocks each: one after the other.
    threads = [in_thread(lambda: said.append(ask(small, [4, 5], 40))) for _ in range(3)]
    for thread in threads:
        thread.join()
    assert said[0] == said[1] == said[2]
    assert len(said[0]) == 40
    tiny = Batcher(batcher._decoder, blocks=2)
    with pytest.raises(torch.OutOfMemoryError):
        ask(tiny, [4, 5], 40)
    assert len(ask(tiny, [4, 5], 20)) == 20
    small.close()
    tiny.close()


def test_more_requests_than_rows_are_answered_in_order(batcher: Batcher) -> None:
    wanted = ask(batcher, [3], 10)
    said: list[list[int]] = []
    threads = [in_thread(lambda: said.append(ask(batcher, [3], 10))) for _ in range(9)]
    for thread in threads:
        thread.join()
    assert said == [wanted] * 9


@pytest.mark.parametrize("failing", ["prompt", "rows"])
def test_a_failure_is_told_to_those_it_concerns_and_the_next_request_is_answered(
    batcher: Batcher, watched: Watched, failing: str
) -> None:
    wanted = ask(batcher, [1, 2], 5)

    def fail(what: str) -> None:
        if what == failing:
            raise RuntimeError("the device fell over")

    watched.before = fail
    with pytest.raises(RuntimeError, match="fell over"):
        ask(batcher, [1, 2], 5)
    watched.before = lambda what: None
    assert ask(batcher, [1, 2], 5) == wanted
    assert batcher._allocator.available == 7


def test_a_closed_batcher_ends_its_requests(watched: Watched) -> None:
    decoder: Any = watched
    batcher = Batcher(decoder, blocks=8)
    reading = batcher.tokens([1, 2], GREEDY, max_tokens=60, ends=NO_END)
    next(reading)
    batcher.close()
    assert len(list(reading)) < 59
    assert ask(batcher, [1], 3) == []


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_base_and_tuned_answers_are_computed_in_one_batch(tmp_path: Path, family: str) -> None:
    import peft
    import transformers

    base = make_tiny_model(tmp_path / "base", family=family)
    adapter = make_adapter(tmp_path / "adapter", base)
    tuned = load_pretrained_text(adapter, base=base)
    batcher = batch_answers([tuned, tuned.without_adapter()])
    assert batcher is not None
    plain: Any = transformers.AutoModelForCausalLM.from_pretrained(base)
    prompt = list(range(3, 45))

    def generated(model: Any) -> list[int]:
        found = model.generate(
            input_ids=torch.tensor([prompt]), max_new_tokens=15, do_sample=False, eos_token_id=None
        )
        return list(found[0, len(prompt) :].tolist())

    wanted = [generated(plain), generated(peft.PeftModel.from_pretrained(plain, str(adapter)))]
    assert wanted[0] != wanted[1]
    said: list[list[int]] = [[], []]

    def answer(is_tuned: bool) -> None:
        tokens = batcher.tokens(prompt, GREEDY, max_tokens=15, ends=NO_END, tuned=is_tuned)
        said[is_tuned].extend(tokens)

    threads = [in_thread(lambda is_tuned=is_tuned: answer(is_tuned)) for is_tuned in (False, True)]
    for thread in threads:
        thread.join()
    batcher.close()
    assert said == wanted


def test_four_bits_are_computed_from_packed_matrices(tmp_path: Path) -> None:
    import transformers

    from gpubloom.engine.pretrained_text import to_four_bit

    folder = make_tiny_model(tmp_path / "model")

    def loaded(*, packed: bool) -> PretrainedText:
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return PretrainedText(to_four_bit(model, torch.device("cpu"), torch.float32, packed=packed))

    said = []
    for packed in (False, True):
        batcher = batch_answers([loaded(packed=packed)])
        assert batcher is not None
        said.append(ask(batcher, list(range(40)), 20))
        batcher.close()
    assert said[0] == said[1]

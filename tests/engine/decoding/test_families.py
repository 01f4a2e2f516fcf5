"""Answers that advance together are those that transformers generates one by one, for every family."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from gpubloom.engine.decoding.batcher import Batcher
from gpubloom.engine.decoding.llama_decoder import LlamaDecoder
from gpubloom.engine.decoding.sampling import GREEDY
from gpubloom.engine.decoding.transformers_decoder import TransformersDecoder
from gpubloom.engine.models import TransformerLM
from gpubloom.engine.pretrained_text import PretrainedText
from gpubloom.engine.serving.batched_answers import batch_answers
from gpubloom.plan import PRESETS
from tests.engine.models.families import FAMILIES, VOCABULARY, reference_of

TOKENS = 20
# Computed one answer at a time: what they rotate by depends on the length, or attention is their own.
ALONE = {"phi3-long", "falcon", "falcon-7b", "falcon-sequential"}
FAST = {"llama", "llama-tied", "llama-padded", "qwen2", "qwen3", "mistral-full"}


def prompts(*lengths: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(0, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]


def expected(reference: Any, prompt: list[int], tokens: int = TOKENS) -> list[int]:
    with torch.no_grad():
        found = reference.generate(
            torch.tensor([prompt]), max_new_tokens=tokens, do_sample=False, pad_token_id=0, eos_token_id=None
        )
    return list(found[0, len(prompt) :].tolist())


def together(batcher: Batcher, asked: list[list[int]], tokens: int = TOKENS) -> list[list[int]]:
    """All prompts at once, each read by a thread of its own."""
    said: list[list[int]] = [[] for _ in asked]

    def ask(index: int) -> None:
        said[index].extend(batcher.tokens(asked[index], GREEDY, max_tokens=tokens, ends=frozenset()))

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(asked))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return said


@contextmanager
def batcher_of(model: Any) -> Iterator[Batcher]:
    batcher = batch_answers([model])
    assert batcher is not None
    try:
        yield batcher
    finally:
        batcher.close()


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - ALONE))
def test_greedy_tokens_are_those_of_transformers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Prompts are read in several pieces, of which some begin within a block.
    monkeypatch.setattr("gpubloom.engine.decoding.batcher.PIECE", 10)
    reference = reference_of(name)
    asked = prompts(1, 5, 12, 33, 40)
    wanted = [expected(reference, prompt) for prompt in asked]
    with batcher_of(PretrainedText(reference)) as batcher:
        assert isinstance(batcher._decoder, LlamaDecoder if name in FAST else TransformersDecoder)
        assert together(batcher, asked) == wanted
        # Once more: the beginnings are remembered now.
        assert together(batcher, asked) == wanted


@pytest.mark.parametrize("name", sorted(ALONE))
def test_a_family_that_cannot_be_batched_is_left_as_it_is(name: str) -> None:
    model = PretrainedText(reference_of(name))
    assert batch_answers([model]) is None
    assert model.stream is None


def test_our_own_architecture_says_together_what_it_says_alone() -> None:
    model = TransformerLM.create(PRESETS["nano"], seed=0).eval()
    asked = prompts(3, 9, 30)

    def alone(prompt: list[int]) -> list[int]:
        seen = list(prompt)
        for _ in range(TOKENS):
            with torch.no_grad():
                seen.append(int(model(torch.tensor([seen]))[0, -1].argmax()))
        return seen[len(prompt) :]

    wanted = [alone(prompt) for prompt in asked]
    with batcher_of(model) as batcher:
        assert together(batcher, asked) == wanted

"""Text from a model, token by token. Knows no run: it takes a model, a tokenizer and a prompt."""

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gpubloom.engine.data import Tokenizer
from gpubloom.engine.decoding.sampling import Sampling, SamplingRows

# So many positions of a prompt are read at a time: others wait no longer than that for their next token.
_PIECE = 512

Turn = Callable[[], contextlib.AbstractContextManager[None]]


class Stream(Protocol):
    """Token ids of one answer; closing the generator ends it."""

    def __call__(
        self, prompt: Sequence[int], sampling: Sampling, *, max_tokens: int, ends: frozenset[int]
    ) -> Generator[int, None, None]: ...


class KVCache(Protocol):
    """Positions that need not be computed again."""

    @property
    def length(self) -> int: ...


class TextModel(Protocol):
    """Logits of every position given (or of the last alone), after those that the cache remembers."""

    @property
    def context_length(self) -> int: ...

    @property
    def reads_in_pieces(self) -> bool:
        """Whether a cache that remembers something takes more than one further position at once."""

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def new_cache(self) -> Sequence[KVCache]: ...

    def __call__(self, tokens_BT: Tensor, cache: Any, *, last_only: bool = False) -> Tensor: ...


def generate(
    model: TextModel,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    max_tokens: int,
    temperature: float = 0.8,
    top_k: int | None = 40,
    seed: int = 0,
) -> Iterator[str]:
    """Streams the continuation of a prompt, however long; temperature 0 always takes the likeliest token."""
    end = tokenizer.end_of_text
    tokens = generate_tokens(
        model,
        # A document begins after the end of the one before it.
        [int(token) for token in tokenizer.encode(prompt)] or [0 if end is None else end],
        Sampling(temperature, top_k, seed=seed),
        max_tokens=max_tokens,
        ends=frozenset() if end is None else frozenset({end}),
    )
    return tokenizer.decode_stream(tokens)


@torch.inference_mode()
def generate_tokens(
    model: TextModel,
    prompt: Sequence[int],
    sampling: Sampling,
    *,
    max_tokens: int,
    ends: frozenset[int],
    turn: Turn = contextlib.nullcontext,
) -> Generator[int, None, None]:
    """Token ids until one of `ends` or max_tokens. Each piece of work happens within a `turn`.

    When the context is full, the model goes on with its newest half: positions beyond it were never trained.
    A model that has a `stream` (a batch that others share) computes there instead, unless that can happen.
    """
    seen = list(prompt)
    limit = model.context_length
    stream: Stream | None = getattr(model, "stream", None)
    if stream is not None and len(seen) + max_tokens <= limit:
        with contextlib.closing(stream(seen, sampling, max_tokens=max_tokens, ends=ends)) as tokens:
            yield from tokens
        return
    device = next(model.parameters()).device
    chooser = SamplingRows(1, device)
    chooser.set(0, sampling)
    new, cache = seen[-limit:], model.new_cache()
    for _ in range(max_tokens):
        for piece in _pieces(model, new[:-1]):
            with turn():
                model(torch.tensor([piece], device=device), cache, last_only=True)
        rest = new[-1:] if model.reads_in_pieces else new
        with turn():
            logits_1V = model(torch.tensor([rest], device=device), cache, last_only=True)[:, -1]
            token = int(chooser.choose(logits_1V, sampling.choice))
        if token in ends:
            return
        seen.append(token)
        yield token
        new = [token]
        if cache[0].length == limit:
            new, cache = seen[-max(1, limit // 2) :], model.new_cache()


def _pieces(model: TextModel, tokens: list[int]) -> Iterator[list[int]]:
    if model.reads_in_pieces:
        for start in range(0, len(tokens), _PIECE):
            yield tokens[start : start + _PIECE]

"""Text from a model, token by token. Knows no run: it takes a model, a tokenizer and a prompt."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gpubloom.engine.data import Tokenizer

# So many positions of a prompt are read at a time: others wait no longer than that for their next token.
_PIECE = 512

Turn = Callable[[], contextlib.AbstractContextManager[None]]


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


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen; temperature 0 always takes the likeliest."""

    temperature: float = 0.8
    top_k: int | None = 40
    top_p: float = 1.0
    seed: int = 0


GREEDY = Sampling(temperature=0.0, top_k=None)


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
) -> Iterator[int]:
    """Token ids until one of `ends` or max_tokens. Each piece of work happens within a `turn`.

    When the context is full, the model goes on with its newest half: positions beyond it were never trained.
    """
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(sampling.seed)
    seen = list(prompt)
    limit = model.context_length
    new, cache = seen[-limit:], model.new_cache()
    for _ in range(max_tokens):
        for piece in _pieces(model, new[:-1]):
            with turn():
                model(torch.tensor([piece], device=device), cache, last_only=True)
        rest = new[-1:] if model.reads_in_pieces else new
        with turn():
            logits_V = model(torch.tensor([rest], device=device), cache, last_only=True)[0, -1].float()
            token = _choose(logits_V, sampling, generator)
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


def _choose(logits_V: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    if sampling.temperature == 0:
        return int(logits_V.argmax())
    top_k = sampling.top_k
    if top_k is not None and top_k < len(logits_V):
        least = logits_V.topk(top_k).values[-1]
        logits_V = logits_V.masked_fill(logits_V < least, float("-inf"))
    # From the largest one down, so that a tiny temperature does not overflow.
    probabilities_V = torch.softmax((logits_V - logits_V.max()) / sampling.temperature, dim=-1)
    if sampling.top_p < 1:
        sorted_V, order_V = probabilities_V.sort(descending=True)
        # The first token is always kept: nothing stands before it.
        too_many_V = sorted_V.cumsum(0) - sorted_V >= sampling.top_p
        probabilities_V = probabilities_V.index_fill(0, order_V[too_many_V], 0.0)
    return int(torch.multinomial(probabilities_V, 1, generator=generator))

"""Text from a model, token by token. Knows no run: it takes a model, a tokenizer and a prompt."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gpubloom.engine.data import Tokenizer


class Remembered(Protocol):
    """Positions that need not be computed again."""

    @property
    def length(self) -> int: ...


class TextModel(Protocol):
    """Logits of every position given, after those that the cache remembers."""

    @property
    def context_length(self) -> int: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def new_cache(self) -> Sequence[Remembered]: ...

    def __call__(self, tokens_BT: Tensor, cache: Any) -> Tensor: ...


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
    """Streams the continuation of a prompt; temperature 0 always takes the likeliest token."""
    return tokenizer.decode_stream(
        generate_tokens(
            model, tokenizer, prompt, max_tokens=max_tokens, temperature=temperature, top_k=top_k, seed=seed
        )
    )


@torch.inference_mode()
def generate_tokens(
    model: TextModel,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    max_tokens: int,
    temperature: float,
    top_k: int | None,
    seed: int,
) -> Iterator[int]:
    """Token ids until end-of-text or max_tokens.

    When the context is full, the model goes on with its newest half: positions beyond it were never trained.
    """
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    seen = [int(token) for token in tokenizer.encode(prompt)]
    if not seen:
        # A document begins after the end of the one before it.
        seen = [tokenizer.end_of_text if tokenizer.end_of_text is not None else 0]
    limit = model.context_length
    new, cache = seen[-limit:], model.new_cache()
    for _ in range(max_tokens):
        logits_V = model(torch.tensor([new], device=device), cache)[0, -1].float()
        token = _choose(logits_V, temperature, top_k, generator)
        if token == tokenizer.end_of_text:
            return
        seen.append(token)
        yield token
        new = [token]
        if cache[0].length == limit:
            new, cache = seen[-max(1, limit // 2) :], model.new_cache()


def _choose(logits_V: Tensor, temperature: float, top_k: int | None, generator: torch.Generator) -> int:
    if temperature == 0:
        return int(logits_V.argmax())
    if top_k is not None and top_k < len(logits_V):
        least = logits_V.topk(top_k).values[-1]
        logits_V = logits_V.masked_fill(logits_V < least, float("-inf"))
    probabilities_V = torch.softmax(logits_V / temperature, dim=-1)
    return int(torch.multinomial(probabilities_V, 1, generator=generator))

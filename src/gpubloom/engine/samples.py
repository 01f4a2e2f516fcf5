"""Sample prompts: what a model answers to a person's prompts while it trains.

Answers are greedy, and prompts are rendered as in the playground. A forward pass computes the whole text
again for each token, with no KV cache: it runs under every placement and leaves nothing behind, so a run with
samples has the same losses, bit for bit, as one without.

Shape letters: T positions, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from gpubloom.engine.data import Tokenizer
from gpubloom.engine.serving.answers import Answer, Wanted
from gpubloom.engine.serving.prompt_formatter import PromptFormatter
from gpubloom.engine.serving.resolved_model import ResolvedModel
from gpubloom.errors import InputError
from gpubloom.plan import TrainConfig

# What matrix kernels like.
_LENGTHS = 64

NextLogits = Callable[[Tensor, int], Tensor]
"""Logits (1, V) behind the first so many of the tokens (1, T)."""


@dataclass
class _Seen:
    """In place of a KV cache: the tokens so far."""

    tokens: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        return len(self.tokens)


class _TrainedModel:
    """The model in training, as what generates text asks for it."""

    # The whole text is computed for each token anyway.
    reads_in_pieces = False

    def __init__(
        self,
        logits: NextLogits,
        context_length: int,
        length: int,
        device: torch.device,
        agree: Callable[[Any], Any] | None,
        between: Callable[[], None],
    ) -> None:
        self.context_length = context_length
        self._length = length
        self._logits = logits
        self._on_device = nn.Parameter(torch.empty(0, device=device), requires_grad=False)
        self._agree = agree
        self._between = between

    def parameters(self) -> Iterator[nn.Parameter]:
        yield self._on_device

    def new_cache(self) -> Sequence[_Seen]:
        return [_Seen()]

    def __call__(self, tokens_BT: Tensor, cache: Sequence[_Seen], *, last_only: bool = False) -> Tensor:
        seen = cache[0].tokens
        seen += tokens_BT[0].tolist()
        # Tensors of inference mode would be found by the next backward pass wherever an executor keeps them.
        with torch.inference_mode(mode=False):
            tokens_1T = torch.tensor([seen + [0] * (self._length - len(seen))])
            logits_1V = self._logits(tokens_1T, len(seen)).float()
            if self._agree is not None:
                chosen = self._agree(int(logits_1V.argmax()))
                logits_1V = torch.full_like(logits_1V, -torch.inf)
                logits_1V[0, chosen] = 0.0
        self._between()
        return logits_1V.unsqueeze(1)


class SamplePrompts:
    """The prompts of one run as tokens. `notes`: what a person should know about them."""

    def __init__(
        self,
        config: TrainConfig,
        tokenizer: Tokenizer,
        device: torch.device,
        agree: Callable[[Any], Any] | None = None,
    ) -> None:
        """`agree`: of several processes that compute together, the first one's choice."""
        self._context_length = config.context_length
        self._tokens = config.eval.sample_tokens
        self._device = device
        self._agree = agree
        base = config.model.path if config.has_learned_weights else None
        with TemporaryDirectory(prefix="bloom-samples-") as folder:
            # As an export of the run will have them.
            tokenizer.save(Path(folder), config.context_length)
            found = ResolvedModel(Path(folder), None if base is None else Path(base), None, config)
            self._formatter = PromptFormatter.of(found)
        self._chats = self._formatter.template is not None and not found.trained_on_text
        self.notes: list[str] = []
        self._prompts: list[tuple[str, list[int]]] = []
        for prompt in config.eval.prompts:
            self._add(prompt)

    def _add(self, prompt: str) -> None:
        formatter = self._formatter
        try:
            messages = [{"role": "user", "content": prompt}]
            ids = formatter.chat(messages) if self._chats else formatter.completion(prompt)
        except InputError as problem:
            self.notes.append(f"the sample prompt {prompt[:40]!r} is left out: {problem}")
            return
        if len(ids) >= self._context_length:
            self.notes.append(
                f"the sample prompt {prompt[:40]!r} is left out: it has {len(ids):,} tokens, and the max "
                f"sequence length of the run is {self._context_length:,}"
            )
            return
        self._prompts.append((prompt, ids))

    def answers(
        self, logits: NextLogits, between: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[str, str]]:
        """Each prompt with its answer. `between` is called after each token."""
        # One length for all: a compiled layer is compiled for each shape.
        longest = max((len(ids) for _, ids in self._prompts), default=0) + self._tokens
        length = min(self._context_length, -(-longest // _LENGTHS) * _LENGTHS)
        model = _TrainedModel(logits, self._context_length, length, self._device, self._agree, between)
        formatter = self._formatter
        wanted = Wanted(self._tokens)
        if self._chats:
            wanted = Wanted(self._tokens, stop=formatter.turn_ends, lead=formatter.lead)
        for prompt, ids in self._prompts:
            yield prompt, "".join(Answer(model, formatter, ids, wanted))

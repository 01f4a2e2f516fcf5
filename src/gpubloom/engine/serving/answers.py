"""Answer: one answer as it is written, with the rules for where it ends."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from gpubloom.engine.decoding.sampling import GREEDY, Sampling
from gpubloom.engine.generate import TextModel, Turn, generate_tokens
from gpubloom.engine.serving.prompt_formatter import PromptFormatter

FinishReason = Literal["stop", "length", "gone"]


@dataclass(frozen=True)
class Wanted:
    """The limits and options of an answer."""

    max_tokens: int
    sampling: Sampling = GREEDY
    stop: tuple[str, ...] = ()
    # Text that the model writes before its answer; it is not shown.
    lead: str = ""


class Answer:
    """Iterate over it for pieces of text, each as soon as it is certain; once.

    Afterwards `finish_reason` is the reason of its end and `tokens` the number of generated tokens. `gone` is
    called at every token: an answer ends when its client has left.
    """

    def __init__(
        self,
        model: TextModel,
        formatter: PromptFormatter,
        prompt: Sequence[int],
        wanted: Wanted,
        *,
        turn: Turn = contextlib.nullcontext,
        gone: Callable[[], bool] = lambda: False,
    ) -> None:
        self.prompt_tokens = len(prompt)
        self.tokens = 0
        self.finish_reason: FinishReason = "stop"
        self._gone = gone
        self._room = max(0, min(wanted.max_tokens, model.context_length - len(prompt)))
        tokens = generate_tokens(
            model, prompt, wanted.sampling, max_tokens=self._room, ends=formatter.ends, turn=turn
        )
        self._tokens = tokens
        text = formatter.tokenizer.decode_stream(self._counted(tokens))
        self._pieces = self._until(wanted.stop, _without(wanted.lead, text))

    def __iter__(self) -> Iterator[str]:
        return self._pieces

    def close(self) -> None:
        """Ends the computation, if nobody waits for its next token; whoever waits ends it then."""
        with contextlib.suppress(ValueError):
            self._tokens.close()

    def _counted(self, tokens: Iterator[int]) -> Iterator[int]:
        for token in tokens:
            self.tokens += 1
            yield token
            if self._gone():
                self.finish_reason = "gone"
                return
        if self.tokens == self._room:
            self.finish_reason = "length"

    def _until(self, stops: tuple[str, ...], pieces: Iterator[str]) -> Iterator[str]:
        """Text before the first of `stops`; a possible beginning of a stop waits for the next piece."""
        held = ""
        for piece in pieces:
            held += piece
            if (found := _first(held, stops)) is not None:
                self.finish_reason = "stop"
                if held[:found]:
                    yield held[:found]
                return
            certain = len(held) - _longest_beginning(held, stops)
            if certain:
                yield held[:certain]
                held = held[certain:]
        if held:
            yield held


def _without(lead: str, pieces: Iterator[str]) -> Iterator[str]:
    """All pieces, but not what they begin with."""
    begun = ""
    for piece in pieces:
        begun += piece
        if len(begun) >= len(lead) or not lead.startswith(begun):
            yield begun.removeprefix(lead)
            yield from pieces
            return


def _first(text: str, stops: tuple[str, ...]) -> int | None:
    starts = [start for stop in stops if (start := text.find(stop)) >= 0]
    return min(starts, default=None)


def _longest_beginning(text: str, stops: tuple[str, ...]) -> int:
    """How many characters at the end of a text one of the stops could begin with."""
    lengths = (
        length
        for stop in stops
        for length in range(min(len(stop) - 1, len(text)), 0, -1)
        if text.endswith(stop[:length])
    )
    return max(lengths, default=0)

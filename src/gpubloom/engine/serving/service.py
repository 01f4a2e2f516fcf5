"""Service: answers requests, independent of their protocol, and counts them.

`FairLock` decides which answer computes next: first come, first served, token by token, so that all answers
advance together.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gpubloom.engine.generate import TextModel
from gpubloom.engine.serving.answers import Answer, Wanted
from gpubloom.engine.serving.model_registry import ModelRegistry, NotEnoughMemory
from gpubloom.engine.serving.openai_protocol import ChatRequest, CompletionRequest, Rejected, parse
from gpubloom.engine.serving.prompt_formatter import PromptFormatter
from gpubloom.errors import code_of

_MOST_AT_ONCE = 32


class FairLock:
    """A lock that the longest waiting thread gets next; threading.Lock guarantees no order."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._taken = False

    @contextmanager
    def one(self) -> Iterator[None]:
        """Waits for the lock and releases it at the end."""
        with self._guard:
            mine = threading.Event() if self._taken else None
            if mine is not None:
                self._waiting.append(mine)
            self._taken = True
        if mine is not None:
            mine.wait()
        try:
            yield
        finally:
            with self._guard:
                if self._waiting:
                    self._waiting.popleft().set()
                else:
                    self._taken = False


@dataclass(frozen=True)
class ParsedRequest:
    """A valid request and its answer."""

    request: ChatRequest | CompletionRequest
    model: str
    answer: Answer

    @property
    def is_chat(self) -> bool:
        return isinstance(self.request, ChatRequest)


@dataclass(frozen=True)
class Counts:
    """Totals of all answers so far."""

    requests: int = 0
    prompt_tokens: int = 0
    tokens: int = 0
    seconds: float = 0.0


class Service:
    """Answers that advance together. `on_answer` is called after each answer with its tokens per second."""

    def __init__(
        self,
        registry: ModelRegistry,
        formatter: PromptFormatter,
        on_answer: Callable[[Counts, float], None] = lambda *_: None,
    ) -> None:
        self.registry = registry
        self.formatter = formatter
        self.counts = Counts()
        self._turns = FairLock()
        self._on_answer = on_answer
        self._guard = threading.Lock()
        self._at_once = 0
        self._last_use = time.monotonic()
        self._closing = threading.Event()

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last answer; 0 during an answer."""
        with self._guard:
            return 0.0 if self._at_once else time.monotonic() - self._last_use

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    def close(self, grace_period: float = 5.0) -> None:
        """Ends the running answers, each after its present token."""
        self._closing.set()
        until = time.monotonic() + grace_period
        while self._at_once and time.monotonic() < until:
            time.sleep(0.01)

    @contextmanager
    def asked(self, *, chat: bool, body: Any, gone: Callable[[], bool]) -> Iterator[ParsedRequest]:
        """An answer that can be iterated; the service is not idle within this context. Raises Rejected."""
        with self._slot():
            request = parse(ChatRequest, body) if chat else parse(CompletionRequest, body)
            name = request.model or self.registry.default
            model = self._model(name)
            prompt = self._prompt(request)
            wanted = Wanted(
                request.room(len(prompt), model.context_length),
                request.sampling(),
                request.stops() + (self.formatter.turn_ends if chat else ()),
                self.formatter.lead if chat else "",
            )
            answer = Answer(
                model,
                self.formatter,
                prompt,
                wanted,
                turn=self._turns.one,
                gone=lambda: self.is_closing or gone(),
            )
            started = time.perf_counter()
            try:
                yield ParsedRequest(request, name, answer)
            finally:
                answer.close()
                self._count(answer, time.perf_counter() - started)

    def _model(self, name: str) -> TextModel:
        try:
            return self.registry.get(name)
        except KeyError:
            there = ", ".join(self.registry.names)
            raise Rejected(
                f"The model {name!r} does not exist. Available models: {there}.",
                status=404,
                code="model_not_found",
                param="model",
            ) from None
        except NotEnoughMemory as problem:
            raise Rejected(str(problem), status=503, code="not_enough_memory", kind="server_error") from None
        except ValueError as problem:
            raise Rejected(str(problem), status=503, code="not_loadable", kind="server_error") from None

    def _prompt(self, request: ChatRequest | CompletionRequest) -> list[int]:
        if isinstance(request, CompletionRequest):
            return self.formatter.completion(request.text())
        try:
            return self.formatter.chat([message.fields() for message in request.messages])
        except ValueError as problem:
            raise Rejected(str(problem), param="messages", code=code_of(problem)) from None

    @contextmanager
    def _slot(self) -> Iterator[None]:
        with self._guard:
            if self._at_once >= _MOST_AT_ONCE:
                raise Rejected(
                    f"Too many requests at the same time (limit {_MOST_AT_ONCE}): try again later.",
                    status=429,
                    code="too_many_requests",
                    kind="rate_limit_error",
                )
            self._at_once += 1
        try:
            yield
        finally:
            with self._guard:
                self._at_once -= 1
                self._last_use = time.monotonic()

    def _count(self, answer: Answer, seconds: float) -> None:
        with self._guard:
            before = self.counts
            self.counts = counts = Counts(
                before.requests + 1,
                before.prompt_tokens + answer.prompt_tokens,
                before.tokens + answer.tokens,
                before.seconds + seconds,
            )
        self._on_answer(counts, answer.tokens / seconds if seconds else 0.0)

"""OpenAI's protocol as values: the fields of requests, the forms of answers and errors. Knows no sockets."""

import secrets
import time
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from gpubloom.engine.decoding.sampling import Sampling
from gpubloom.errors import CodedError
from gpubloom.plan.tasks import SamplingSettings
from gpubloom.plan.validation import InvalidConfig

_MOST_STOPS = 16
_MOST_MESSAGES = 10_000
# The limit of an answer when a request gives none.
_USUAL_TOKENS = 512

# Unsupported fields that would change the answer, and their values that change nothing: others are rejected.
_UNKNOWN: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "tools": ([],),
    "functions": ([],),
    "response_format": ({"type": "text"},),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
}


class Rejected(CodedError):
    """A request that is answered with an error, in the form that OpenAI's clients expect."""

    def __init__(
        self,
        sentence: str,
        *,
        status: int = 400,
        code: str,
        param: str | None = None,
        kind: str = "invalid_request_error",
    ) -> None:
        super().__init__(sentence)
        self.code = code
        self.status = status
        self.body = {"error": {"message": sentence, "type": kind, "param": param, "code": code}}


class _Stream(BaseModel):
    include_usage: bool = False


class GenerationRequest(SamplingSettings):
    """The fields of both kinds of request. Fields that change nothing are ignored."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    model: str | None = None
    stop: str | list[Annotated[str, Field(min_length=1)]] | None = None
    stream: bool | None = None
    stream_options: _Stream | None = None
    max_completion_tokens: int | None = Field(None, ge=1)

    def sampling(self) -> Sampling:
        seed = secrets.randbits(63) if self.seed is None else self.seed
        return Sampling(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_k=None,
            top_p=1.0 if self.top_p is None else self.top_p,
            seed=seed,
        )

    def stops(self) -> tuple[str, ...]:
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(stops) > _MOST_STOPS:
            raise Rejected(
                f"At most {_MOST_STOPS} stop sequences can be given, not {len(stops)}.",
                param="stop",
                code="too_many_stops",
            )
        return tuple(stop for stop in stops if stop)

    def room(self, prompt_tokens: int, context_length: int) -> int:
        """The limit of tokens to generate; raises Rejected when they or the prompt do not fit the context."""
        wanted = self.max_completion_tokens or self.max_tokens
        if wanted is not None and wanted > context_length:
            raise Rejected(
                f"max_tokens is {wanted:,}, but the model's context holds only {context_length:,} tokens.",
                param="max_tokens",
                code="context_length_exceeded",
            )
        if prompt_tokens >= context_length:
            raise Rejected(
                f"The prompt has {prompt_tokens:,} tokens, which leaves no room for an answer: the model's "
                f"context holds {context_length:,}.",
                code="context_length_exceeded",
            )
        return min(wanted or _USUAL_TOKENS, context_length - prompt_tokens)


class _Message(BaseModel):
    model_config = ConfigDict(extra="allow")

    role: Annotated[str, Field(min_length=1)]
    content: str = ""

    @field_validator("content", mode="before")
    @classmethod
    def _text_of_parts(cls, content: object) -> object:
        if not isinstance(content, list):
            return "" if content is None else content
        for part in content:
            is_text = isinstance(part, dict) and part.get("type") == "text"
            if not is_text or not isinstance(part.get("text"), str):
                raise PydanticCustomError(
                    "not_text", "a message part must be text; images and audio are not supported"
                )
        return "".join(part["text"] for part in content)

    def fields(self) -> dict[str, Any]:
        """The message as chat templates know it."""
        return {"role": self.role, "content": self.content, **(self.model_extra or {})}


Kind = TypeVar("Kind", bound=GenerationRequest)


class ChatRequest(GenerationRequest):
    messages: list[_Message] = Field(min_length=1, max_length=_MOST_MESSAGES)


class CompletionRequest(GenerationRequest):
    prompt: str | list[str]

    def text(self) -> str:
        prompts = [self.prompt] if isinstance(self.prompt, str) else self.prompt
        if len(prompts) != 1:
            raise Rejected(
                f"A request can have one prompt, not {len(prompts)}.",
                param="prompt",
                code="too_many_prompts",
            )
        return prompts[0]


def parse(kind: type[Kind], body: Any) -> Kind:
    """Raises Rejected with a sentence that names each invalid field."""
    if not isinstance(body, dict):
        raise Rejected("The request body must be a JSON object.", code="not_json_object")
    for name, harmless in _UNKNOWN.items():
        if body.get(name) is not None and body[name] not in harmless:
            raise Rejected(
                f"{name} is not supported: remove it from the request.", param=name, code="unsupported"
            )
    try:
        return kind.model_validate(body)
    except ValidationError as problem:
        where = problem.errors()[0]["loc"]
        found = InvalidConfig(problem, kind)
        raise Rejected(str(found), code=found.code, param=str(where[0]) if where else None) from None


class Shape:
    """The JSON of one answer, whole or in pieces, for chat or for completions."""

    def __init__(self, *, chat: bool, model: str) -> None:
        self._chat = chat
        self._head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, text: str, finish_reason: str, usage: dict[str, int]) -> dict[str, Any]:
        said: dict[str, Any] = {"text": text}
        if self._chat:
            said = {"message": {"role": "assistant", "content": text}}
        kind = "chat.completion" if self._chat else "text_completion"
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head, "object": kind, "choices": [choice], "usage": usage}

    def begin(self) -> dict[str, Any] | None:
        """The event before the first piece; None for completions."""
        return self._piece({"delta": {"role": "assistant", "content": ""}}, None) if self._chat else None

    def piece(self, text: str) -> dict[str, Any]:
        return self._piece({"delta": {"content": text}} if self._chat else {"text": text}, None)

    def end(self, finish_reason: str) -> dict[str, Any]:
        return self._piece({"delta": {}} if self._chat else {"text": ""}, finish_reason)

    def used(self, usage: dict[str, int]) -> dict[str, Any]:
        return {**self._head, "object": self._object, "choices": [], "usage": usage}

    @property
    def _object(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _piece(self, said: dict[str, Any], finish_reason: str | None) -> dict[str, Any]:
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head, "object": self._object, "choices": [choice]}


def usage(prompt_tokens: int, tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": tokens,
        "total_tokens": prompt_tokens + tokens,
    }

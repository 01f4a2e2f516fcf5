"""The JSON of orders for questions."""

from typing import Annotated
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from gpubloom.datasets.documents.questions import MOST_PAIRS
from gpubloom.server.datasets.schemas import Name, RowSourceOut
from gpubloom.server.schema import Line, Schema, Whole
from gpubloom.server.secrets.service import NAME

_CHAT = "/chat/completions"


def _endpoint(address: str) -> str:
    try:
        parts = urlsplit(address)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname)
        plain = not (parts.query or parts.fragment or parts.username or parts.password)
    except ValueError:
        valid = plain = False
    if not (valid and plain):
        raise PydanticCustomError(
            "invalid_endpoint",
            "Enter the base address of an OpenAI-compatible API, such as https://api.example.com/v1, without "
            "a key in it.",
        )
    return address.rstrip("/").removesuffix(_CHAT).rstrip("/")


class QuestionsIn(Schema):
    """Which model writes how many pairs, and what it may cost at most."""

    endpoint: Annotated[
        Annotated[Line, Field(max_length=500), AfterValidator(_endpoint)] | None,
        Field(
            title="Endpoint",
            description="Base address of an OpenAI-compatible API. If empty: a playground of this server.",
        ),
    ] = None
    model: Annotated[
        Line,
        Field(
            min_length=1,
            max_length=200,
            title="Model",
            description="Model name at the endpoint, or id or name of a playground or a training job.",
        ),
    ]
    secret: Annotated[
        Annotated[str, Field(pattern=NAME)] | None,
        Field(title="API key", description="Name of your secret with the key of the endpoint."),
    ] = None
    pairs: Annotated[Whole, Field(ge=1, le=MOST_PAIRS)] = Field(
        2, title="Pairs per passage", description="Question-answer pairs asked for each passage."
    )
    most_passages: Annotated[Whole, Field(ge=1, le=100_000)] = Field(
        200,
        title="Most passages",
        description="Ask about at most this many passages, spread evenly over the documents.",
    )
    max_answer_tokens: Annotated[Whole, Field(ge=64, le=32_768)] = Field(
        800, title="Tokens per answer", description="Most tokens of one answer of the model."
    )
    most_tokens: Annotated[Whole, Field(ge=1_000, le=10_000_000_000)] = Field(
        500_000, title="Most tokens", description="Stop before this many tokens are used in total."
    )


class NewQuestions(QuestionsIn):
    """An order for pairs about the passages of a dataset. They become a dataset of their own."""

    name: Name | None = None


class QuestionsEstimate(Schema):
    """What an order may cost. `tokens` is the most that it uses; `limited`: the token limit ends it early."""

    passages: int
    pairs: int
    input_tokens: Annotated[int, Field(description="About this many tokens of passages and instructions.")]
    answer_tokens: Annotated[int, Field(description="At most this many tokens of answers.")]
    tokens: int
    limited: bool


class RejectedOut(Schema):
    """An answer, or a pair of it, that is not used, with the reason and its beginning."""

    source: RowSourceOut
    reason: str
    text: str


class RejectedAnswers(Schema):
    items: list[RejectedOut]
    total: int


class Playground(Schema):
    """A model of this server that answers an order."""

    job_id: UUID
    which: str | None

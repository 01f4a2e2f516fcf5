"""The base of every JSON shape at the border: camelCase outside, unknown fields refused."""

import unicodedata
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Strict, StringConstraints
from pydantic.alias_generators import to_camel


class Schema(BaseModel):
    """Base of requests and responses."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", from_attributes=True
    )


def _storable(text: str) -> str:
    # PostgreSQL cannot hold NUL, and a lone surrogate has no UTF-8 form.
    if "\x00" in text:
        raise ValueError("This contains a NUL character.")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("This is not valid Unicode text.")
    return text


def _single_line(text: str) -> str:
    # Unicode has more line ends than "\n", and a name may stand in a letter's subject.
    if any(unicodedata.category(character) in {"Cc", "Zl", "Zp"} for character in text):
        raise ValueError("This must be a single line without control characters.")
    return text


Storable = AfterValidator(_storable)
Trimmed = StringConstraints(strip_whitespace=True)
Line = Annotated[str, Trimmed, Storable, AfterValidator(_single_line)]
Text = Annotated[str, Trimmed, Storable]

# JSON has types of its own: "90" is no number, and 1 is not true.
Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict()]

# What a run measured. JSON has no word for NaN and the infinities: they are these texts.
MetricNumber = float | Literal["NaN", "Infinity", "-Infinity"]


class Message(Schema):
    """A reply that is only a sentence."""

    detail: str

"""The base of every JSON shape at the border: snake_case, unknown fields refused.

The addresses of the product's first description speak camelCase: `/api/projects` and `/api/training-jobs`.
Their shapes are those of the other addresses with `CAMEL_CASE` as their config.
"""

import unicodedata
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SecretStr,
    Strict,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    computed_field,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from gpubloom.traincard.findings import Severity, finding_title, has_no_best


class Schema(BaseModel):
    """Base of requests and responses."""

    # An answer has all its fields, also those with a default.
    model_config = ConfigDict(
        extra="forbid", from_attributes=True, json_schema_serialization_defaults_required=True
    )


CAMEL_CASE = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Writable(Schema):
    """A request that may contain fields that only the server sets, as in a record that was read earlier.

    These fields change nothing; `ignored` names them, so that the answer can. Other unknown fields are
    refused.
    """

    READ_ONLY: ClassVar[frozenset[str]] = frozenset()
    _ignored: list[str] = PrivateAttr(default_factory=list)

    @model_validator(mode="wrap")
    @classmethod
    def _without_read_only(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, dict):
            return handler(data)
        made = handler({name: value for name, value in data.items() if name not in cls.READ_ONLY})
        made._ignored = [name for name in data if name in cls.READ_ONLY]
        return made

    @property
    def ignored(self) -> list[str]:
        return self._ignored


def storable(text: str) -> str:
    """What a stranger wrote, as a database and an answer can hold it: no NUL, no half of a character."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def _refuse_unstorable(text: str) -> str:
    # PostgreSQL cannot hold NUL, and a lone surrogate has no UTF-8 form.
    if "\x00" in text:
        raise PydanticCustomError("invalid_text", "This text contains a NUL character. Remove it.")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise PydanticCustomError("invalid_text", "This text is not valid Unicode.")
    return text


def _single_line(text: str) -> str:
    # Unicode has more line ends than "\n", and a name may stand in the subject of an email.
    if any(unicodedata.category(character) in {"Cc", "Zl", "Zp"} for character in text):
        raise PydanticCustomError("not_one_line", "Enter a single line without control characters.")
    return text


def _storable_secret(secret: SecretStr) -> SecretStr:
    _refuse_unstorable(secret.get_secret_value())
    return secret


Storable = AfterValidator(_refuse_unstorable)
# pydantic looks at the characters of plain texts only.
StorableSecret = AfterValidator(_storable_secret)
Trimmed = StringConstraints(strip_whitespace=True)
Line = Annotated[str, Trimmed, Storable, AfterValidator(_single_line)]
Text = Annotated[str, Trimmed, Storable]

# JSON has types of its own: "90" is no number, and 1 is not true.
Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict()]

# What a run measured. JSON has no word for NaN and the infinities: they are these texts.
NonFinite = Literal["NaN", "Infinity", "-Infinity"]
MetricNumber = float | NonFinite


def described_as(model: type[BaseModel]) -> BeforeValidator:
    """Describes free fields as those of a model, which validates them later."""
    return BeforeValidator(lambda fields: fields, json_schema_input_type=model)


class Tolerant(BaseModel):
    """A value of the wrong type becomes the default of the field."""

    model_config = ConfigDict(extra="ignore", json_schema_serialization_defaults_required=True)

    @field_validator("*", mode="wrap")
    @classmethod
    def _default_for_wrong_type(
        cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Any:
        try:
            return handler(value)
        except ValidationError:
            field = cls.model_fields[str(info.field_name)]
            if field.is_required():
                raise
            return field.get_default(call_default_factory=True)


class Finding(Tolerant):
    """Something about a run, its data or its settings that a person should know."""

    kind: str = Field("", description="What was found, such as diverging or few_rows_used.")
    severity: Severity = Field("info", description="How much it matters.")
    sentence: str = Field("", description="What is wrong, with its figures.")
    next_step: str = Field("", description="What to do about it. May be empty.")
    evidence: dict[str, JsonValue] = Field({}, description="The numbers behind the finding.")
    since: Number | None = Field(
        None, description="Start of the problem, in seconds since 1970. None if unknown."
    )

    @computed_field(description="The kind in words.")  # type: ignore[prop-decorator]
    @property
    def title(self) -> str:
        return finding_title(self.kind)

    @computed_field(  # type: ignore[prop-decorator]
        description="Whether this finding forbids to call any step of the run the best."
    )
    @property
    def without_best(self) -> bool:
        return has_no_best([self.kind])


class Span(Schema):
    """An estimate with a range."""

    low: float
    likely: float
    high: float


class Message(Schema):
    """A response that is only a sentence."""

    detail: str

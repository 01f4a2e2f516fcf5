"""Validation of configs: the base class of all parts, and errors as sentences a person can act on.

Every problem has a code: the type that pydantic gives it (missing, extra_forbidden, less_than_equal), or that
of the PydanticCustomError which our own validators raise.
"""

import difflib
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import AliasChoices, AliasGenerator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel, to_snake
from pydantic_core.core_schema import ErrorType

from gpubloom.errors import CodedError, InputError, error_line
from gpubloom.plan import limits

Fraction = Annotated[float, Field(ge=0, le=1)]

_LIMITS: dict[str, int] = {name: value for name, value in vars(limits).items() if name.startswith("MAX_")}


class Part(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        protected_namespaces=(),
        allow_inf_nan=False,
        json_schema_serialization_defaults_required=True,
        alias_generator=AliasGenerator(validation_alias=lambda name: AliasChoices(name, to_camel(name))),
    )

    @classmethod
    def own_names(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields with their names in snake_case, at every depth; unknown names do not change.

        Without this, fields of two spellings could not be merged. If a field is given in both spellings,
        the camelCase name stays, and validation rejects it.
        """
        aliases = {to_camel(name): name for name in cls.model_fields}
        renamed: dict[str, Any] = {}
        for name, value in fields.items():
            own = aliases.get(name, name)
            known = cls.model_fields.get(own)
            part = None if known is None else known.annotation
            if isinstance(value, Mapping) and isinstance(part, type) and issubclass(part, Part):
                value = part.own_names(value)
            renamed[name if own != name and own in fields else own] = value
        return renamed

    @classmethod
    def camel_names(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields with their names in camelCase, at every depth; what is not known stays as it is."""
        renamed: dict[str, Any] = {}
        for name, value in fields.items():
            known = cls.model_fields.get(name)
            part = None if known is None else known.annotation
            if isinstance(value, Mapping) and isinstance(part, type) and issubclass(part, Part):
                value = part.camel_names(value)
            renamed[name if known is None else to_camel(name)] = value
        return renamed


class FieldProblem(NamedTuple):
    """One problem of a config; `field` is its path, empty when several fields contradict each other."""

    code: str
    field: str
    sentence: str


class InvalidConfig(InputError):
    """A config with problems. The code is that of the only one, or invalid_config for several.

    `origins`: where the values of fields come from, if the person did not type them.
    """

    def __init__(
        self, error: ValidationError, model: type[BaseModel], origins: Mapping[str, str] | None = None
    ) -> None:
        self.problems = [
            problem._replace(sentence=f"{problem.sentence} ({origins[problem.field]})")
            if origins and problem.field in origins
            else problem
            for problem in problems(error, model)
        ]
        several = len(self.problems) > 1
        super().__init__("invalid_config" if several else self.problems[0].code, _joined(self.problems))

    @property
    def lines(self) -> list[str]:
        return [error_line(problem.code, f"{problem.sentence}.") for problem in self.problems]


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """All problems of a config in one sentence, field by field."""
    return _joined(problems(error, model))


def problems(error: ValidationError, model: type[BaseModel]) -> list[FieldProblem]:
    """All problems of a config, field by field."""
    return [
        FieldProblem(problem_code(found), ".".join(str(part) for part in found["loc"]), _one(found, model))
        for found in typing.cast(list[dict[str, typing.Any]], error.errors())
    ]


def problem_code(found: Mapping[str, Any]) -> str:
    """The code of one entry of pydantic's list of errors."""
    error = found.get("ctx", {}).get("error")
    return error.code if isinstance(error, CodedError) else str(found["type"])


def _joined(found: list[FieldProblem]) -> str:
    return "; ".join(problem.sentence for problem in found) + "."


_PYDANTIC_TYPES = frozenset(typing.get_args(ErrorType))


def _one(problem: dict[str, typing.Any], model: type[BaseModel]) -> str:
    location = problem["loc"]
    field = ".".join(str(part) for part in location)
    match problem["type"]:
        case "extra_forbidden":
            hint = unknown_field_hint(model, location)
            return f"unknown field {field}" + (f" ({hint[0].lower()}{hint[1:].rstrip('.')})" if hint else "")
        case "less_than_equal":
            name = _limit_name(str(location[-1]), problem["ctx"]["le"])
            return f"{field} {value_problem(problem)}{name}"
        case own if own == "value_error" or own not in _PYDANTIC_TYPES:
            return _in_field(field, value_problem(problem))
        case _:
            return f"{field} {value_problem(problem)}"


# What a value had to be, by the code of its error.
_NOT = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false"),
    **dict.fromkeys(("uuid_parsing", "uuid_type"), "an id"),
    "finite_number": "a finite number",
    "string_unicode": "UTF-8 text: rename the file or folder",
}


def value_problem(found: Mapping[str, Any]) -> str:
    """What is wrong with the value in one entry of pydantic's list of errors: "'x' is not a number"."""
    given, context = found["input"], found.get("ctx", {})
    match found["type"]:
        case "less_than_equal":
            return f"{given!r} is above the limit of {context['le']:,}"
        case "greater_than_equal":
            return f"{given!r} is below the minimum of {context['ge']:,}"
        case "greater_than":
            return f"{given!r} is too small: it must be above {context['gt']:,g}"
        case "string_too_short" if given == "":
            return "is empty"
        case kind if kind in _NOT:
            return f"{given!r} is not {_NOT[kind]}"
        case "value_error":
            return str(context["error"])
        case own if own not in _PYDANTIC_TYPES:
            return str(found["msg"])
        case _:
            return f"{given!r}: {found['msg'][0].lower()}{found['msg'][1:]}"


def unknown_field_hint(model: type[BaseModel], location: Sequence[object]) -> str:
    """What may stand in place of a field that `model` does not have; empty when nobody knows."""
    known = _fields(model, location[:-1])
    if close := difflib.get_close_matches(str(location[-1]), known, n=1):
        return f"Did you mean {close[0]}?"
    return f"Known fields: {', '.join(known)}." if known else ""


def _in_field(field: str, sentence: str) -> str:
    sentence = sentence.rstrip(".")
    return f"{field}: {sentence}" if field else sentence


def _fields(model: type[BaseModel], location: Sequence[object]) -> list[str]:
    """The field names at a place in a nested model."""
    for part in location:
        info = model.model_fields.get(to_snake(str(part)))
        if info is None or not (isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel)):
            return []
        model = info.annotation
    return list(model.model_fields)


def _limit_name(field: str, limit: float) -> str:
    """Several limits may share a value; the one that sounds like the field is meant."""
    names = [name for name, value in _LIMITS.items() if value == limit]
    if not names:
        return ""
    spelled = "MAX_" + to_snake(field).upper()
    return f" ({max(names, key=lambda name: difflib.SequenceMatcher(None, name, spelled).ratio())})"

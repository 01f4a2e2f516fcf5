"""What every part of a TrainConfig has in common."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AliasChoices, AliasGenerator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Fraction = Annotated[float, Field(ge=0, le=1)]


class Part(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        protected_namespaces=(),
        allow_inf_nan=False,
        alias_generator=AliasGenerator(validation_alias=lambda name: AliasChoices(name, to_camel(name))),
    )

    @classmethod
    def own_names(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields with their names in snake_case, at every depth; what is not known stays as it is.

        Without it, fields of two spellings could not be merged. A field that is given in both keeps its
        second name, under which validation refuses it.
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

"""What every part of a TrainConfig has in common."""

from typing import Annotated

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

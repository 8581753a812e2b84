"""The key `model`: a model's name, a mapping with its options, or a user's file and function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from netfold.errors import shown
from netfold.sim.keys.fields import refuse_unknown
from netfold.sim.workload.training.models.registry import MODELS, model_kinds
from netfold.sim.workload.training.models.spec import Model
from netfold.sim.workload.training.user.model import PATTERN, UserModel, require_function


class _ByName:
    """Writes a model's name out as a mapping before that is validated, and back when it is dumped."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(
            _written_out,
            handler(source),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda model: model.written),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        names: JsonSchemaValue = {"enum": list(model_kinds()), "type": "string"}
        own: JsonSchemaValue = {"type": "string", "pattern": PATTERN, "examples": ["./mine.py:make"]}
        mappings: Any = schema
        return {"anyOf": [names, own, handler(mappings["schema"])]}


def _written_out(value: object) -> object:
    """The mapping that a name, or a user's file and function, is short for."""
    if isinstance(value, dict | Model):
        return value
    if not isinstance(value, str):
        raise ValueError(f"must be the name of a model, or a mapping, found {shown(value)}")
    if any(sign in value for sign in (":", "/", ".")):
        return {"kind": "user", "make": require_function(value)}
    return {"kind": refuse_unknown(value, model_kinds())}


if TYPE_CHECKING:
    AnyModel = Model
else:
    AnyModel = Annotated[Union[(*MODELS, UserModel)], Field(discriminator="kind"), _ByName()]

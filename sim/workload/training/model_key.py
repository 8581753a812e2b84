"""The key `model` of a scenario: a model's name, or a mapping with its kind and options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from netfold.sim.keys.fields import refuse_unknown
from netfold.sim.workload.training.models.registry import MODELS, model_kinds
from netfold.sim.workload.training.models.spec import Model


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
        mappings: Any = schema
        return {"anyOf": [names, handler(mappings["schema"])]}


def _written_out(value: object) -> object:
    return {"kind": refuse_unknown(value, model_kinds())} if isinstance(value, str) else value


if TYPE_CHECKING:
    AnyModel = Model
else:
    AnyModel = Annotated[Union[MODELS], Field(discriminator="kind"), _ByName()]  # noqa: UP007 (as many as there are)

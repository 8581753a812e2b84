"""All models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from netfold.errors import shown
from netfold.sim.keys import ByKind, refuse_unknown
from netfold.sim.workload.model import Model
from netfold.sim.workload.models.bert import BertQa
from netfold.sim.workload.models.cnn import CnnModel
from netfold.sim.workload.models.gpt import Gpt
from netfold.sim.workload.models.lstm import LstmBillion, LstmModel
from netfold.sim.workload.models.mlp import Mlp, Mlp784
from netfold.sim.workload.models.ncf import Ncf
from netfold.sim.workload.models.resnet import ResNet18, ResNet20, ResNet50
from netfold.sim.workload.models.vgg import Vgg19, Vgg19Small
from netfold.sim.workload.user_model import PATTERN, UserModel, require_function

MODELS: tuple[type[Model], ...] = (
    Ncf,
    Mlp,
    Mlp784,
    CnnModel,
    ResNet20,
    ResNet18,
    ResNet50,
    Vgg19Small,
    Vgg19,
    LstmModel,
    LstmBillion,
    BertQa,
    Gpt,
)


def model_kinds() -> dict[str, type[Model]]:
    """All models by kind, in the order in which they are listed."""
    return {one.name(): one for one in MODELS}


def model_named(kind: str) -> Model:
    """The model of a kind, with its default options.

    Raises
    ------
    KeyError
        There is no such model.
    """
    return model_kinds()[kind].default()


def data_names() -> tuple[str, ...]:
    """The data sets that some model can be trained on."""
    return tuple(sorted({data.name for model in MODELS for data in model.data}))


# The key `model`: a model's name, a mapping with its options, or a user's file and function.


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
    AnyModel = Annotated[Union[(*MODELS, UserModel)], ByKind(), _ByName()]

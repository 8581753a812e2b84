"""All models: the table of what is known of them, and the key `model` of a scenario."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from netfold.errors import NetfoldError, shown
from netfold.kinds import modules_of, register, registered
from netfold.sim.keys import AnySection, ByKind, by_kind, of_kind, read, refuse_unknown
from netfold.sim.workload.model import Density, Model, ModelFacts, TaskSettings
from netfold.sim.workload.user_model import HOW, PATTERN, UserModel

if TYPE_CHECKING:
    from torch import nn

    from netfold.sim.workload.model import Task
    from netfold.sim.workload.models.built_in import BuiltIn

TABLE = Path(__file__).with_name("table.json")
"""What is known of each model with its default options, and with those whose densities are known."""


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(TABLE.read_text("utf-8"))
    return table


def model_kinds() -> tuple[str, ...]:
    """The kinds of all models, netfold's own first."""
    return (*_own_kinds(), *_others())


def _own_kinds() -> tuple[str, ...]:
    return tuple(key for key in _table() if not key.startswith("{"))


def _others() -> dict[str, type[Model]]:
    """Models that are registered by users or installed packages."""
    package = __name__.rpartition(".")[0]
    others = {
        kind: model
        for kind, model in registered(Model).items()
        if model.__module__.rpartition(".")[0] != package
    }
    for kind in others.keys() & set(_own_kinds()):  # netfold's are imported when one of them is built
        other = f"{others[kind].__module__}.{others[kind].__qualname__}"
        raise NetfoldError(
            f"two of netfold.models have the kind {kind!r}: netfold's own and {other}",
            "give one of them another kind",
        )
    return others


def facts_of(key: str) -> ModelFacts:
    """What is known of a model, as `key_of` names it, with its default options if it is not in the table."""
    return _listed(key) if key in _table() else model_named(key).facts


@cache
def _listed(key: str) -> ModelFacts:
    return ModelFacts.model_validate_json(json.dumps(_table()[key]))


def key_of(written: object) -> str:
    """A model as a scenario writes it, as a key of the table."""
    if isinstance(written, dict) and written.keys() == {"kind"}:
        written = written["kind"]
    try:
        return written if isinstance(written, str) else json.dumps(written, sort_keys=True)
    except TypeError:  # no options of a model
        return ""


@dataclass(frozen=True)
class ListedModel(Model):
    """A model whose facts are in the table: PyTorch is imported when it is built."""

    key: str

    @property
    def kind(self) -> str:  # type: ignore[override]  # of an instance
        """The kind that the key names."""
        kind: str = json.loads(self.key)["kind"] if self.key.startswith("{") else self.key
        return kind

    @property
    def facts(self) -> ModelFacts:
        """What the table says."""
        return _listed(self.key)

    @property
    def written(self) -> str | dict[str, Any]:
        """The model as a scenario writes it."""
        options: dict[str, Any] = {} if self.key == self.kind else json.loads(self.key)
        return {"kind": self.kind, **options} if options else self.kind

    @property
    def whole(self) -> BuiltIn:
        """The model with its options."""
        written = self.written if isinstance(self.written, dict) else {}
        options = {
            name: tuple(value) if isinstance(value, list) else value for name, value in written.items()
        }
        return read(classes()[self.kind], {name: options[name] for name in options if name != "kind"})

    def module(self) -> nn.Module:
        """That of the whole model."""
        return self.whole.module()

    def task(self, settings: TaskSettings) -> Task:
        """That of the whole model."""
        return self.whole.task(settings)


@cache
def classes() -> dict[str, type[BuiltIn]]:
    """The classes of netfold's own models by kind, in the order of their files; imports PyTorch."""
    from netfold.sim.workload.models.built_in import BuiltIn

    classes_by_kind: dict[str, type[BuiltIn]] = {}
    for module in modules_of("netfold.sim.workload.models"):
        for value in vars(module).values():
            is_model = isinstance(value, type) and issubclass(value, Model) and not inspect.isabstract(value)
            if is_model and issubclass(value, BuiltIn) and hasattr(value, "kind"):
                classes_by_kind[value.kind] = register(value)
    return classes_by_kind


def model_named(kind: str) -> Model:
    """The model of a kind, with its default options.

    Raises
    ------
    KeyError
        There is no such model.
    """
    return ListedModel(kind) if kind in _own_kinds() else _others()[kind]()


def read_model(value: object) -> Model:
    """The model of a name, a mapping with its options, or a user's file and function; see `AnyModel`."""
    if isinstance(value, Model):
        return value
    if not isinstance(value, str | dict):
        raise ValueError(f"must be the name of a model, or a mapping, found {shown(value)}")
    if isinstance(value, str) and any(sign in value for sign in (":", "/", ".")):
        if not re.fullmatch(PATTERN, value):
            raise ValueError(f"cannot read {value!r}\n{HOW}")
        return UserModel(value)
    kind = value if isinstance(value, str) else value.get("kind")
    if isinstance(value, str):
        refuse_unknown(value, model_kinds())
    if (key := key_of(value)) in _table():
        return ListedModel(key)
    others = _others()
    models = (others[kind], UserModel) if kind in others else model_sections()
    model: Any = of_kind({"kind": value} if isinstance(value, str) else value, by_kind(models))
    return ListedModel(key) if (key := key_of(model.written)) in _table() else model


def known_densities(kind: str) -> Iterator[tuple[Model, Density]]:
    """Models of a kind whose densities are known."""
    for density in facts_of(kind).densities:
        yield read_model({"kind": kind, **density.options}), density


def data_names() -> tuple[str, ...]:
    """The data sets that some model can be trained on."""
    return tuple(sorted({data.name for kind in model_kinds() for data in facts_of(kind).data}))


def model_sections() -> tuple[type[Model], ...]:
    """What the key `model` may hold; imports PyTorch."""
    return (*classes().values(), *_others().values(), UserModel)


class _Named(ByKind):
    """Reads the key `model`; options that are not in the table are read by the model's own class."""

    def sections(self, source: Any) -> Mapping[str, Callable[[], type[AnySection]]]:
        """All models."""
        return by_kind(model_sections())

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            read_model,
            metadata={"marked": source},
            serialization=core_schema.plain_serializer_function_ser_schema(lambda model: model.written),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        names: JsonSchemaValue = {"enum": list(model_kinds()), "type": "string"}
        user_model: JsonSchemaValue = {"type": "string", "pattern": PATTERN, "examples": ["./mine.py:make"]}
        return {"anyOf": [names, user_model, super().__get_pydantic_json_schema__(schema, handler)]}


AnyModel = Annotated[Model, _Named()]
"""The key `model`: a model's name, a mapping with its options, or a user's file and function."""

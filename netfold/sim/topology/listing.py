"""The listing of topologies: kinds, their keys, and the closed forms that they obey."""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass
from typing import Any, get_args

from netfold.sim.scenario.networks import TopologySection, topology_sections
from netfold.units import RATE, SIZE, TIME

_UNITS = {"_bps": RATE, "_ps": TIME, "_bytes": SIZE}


@dataclass(frozen=True)
class Key:
    """A key that a topology may have in a scenario."""

    name: str
    default: Any  # as a scenario writes it; None if there is none
    is_required: bool
    meaning: str


@dataclass(frozen=True)
class Kind:
    """A topology that a scenario can name."""

    kind: str
    meaning: str
    closed_forms: str  # how its figures follow from its keys; empty where nothing is known
    keys: tuple[Key, ...]

    def as_dict(self) -> dict[str, Any]:
        """What JSON can hold."""
        return asdict(self)


def listing() -> tuple[Kind, ...]:
    """All kinds, in the order of the registry; then graphs from files."""
    return tuple(_describe(section) for section in topology_sections())


def _describe(section: type[TopologySection]) -> Kind:
    (kind,) = get_args(section.model_fields["kind"].annotation)
    text = inspect.cleandoc(section.__doc__ or "")
    meaning, _, rest = text.partition("\n")
    made_by = getattr(section, "made_by", None)
    fields = getattr(made_by, "__dataclass_fields__", {})
    units = {
        name.removesuffix(suffix): quantity
        for name in fields
        for suffix, quantity in _UNITS.items()
        if name.endswith(suffix)
    }
    keys = []
    for name, field in section.model_fields.items():
        default = None if field.is_required() or field.default_factory is not None else field.default
        if name in units and isinstance(default, int):
            default = units[name].format(default)
        if name != "kind":
            meant = " ".join((field.description or "").split())
            keys.append(Key(name, default, field.is_required(), meant))
    return Kind(kind, meaning, rest.strip("\n"), tuple(keys))

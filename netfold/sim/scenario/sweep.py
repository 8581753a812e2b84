"""The `sweep` of a scenario: keys and the values that each takes, which span a grid of points.

    sweep: {workers: [4, 16], topology.rate: [10Gbps, 100Gbps], seeds: 3}

A key is a path as `--set` takes it; every point is the whole scenario with one value of each. The values keep
their lines, so that a mistake in a point is reported where its value was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from netfold.errors import Mistakes, shown
from netfold.sim.keys.fields import Count
from netfold.sim.keys.section import Section
from netfold.sim.scenario.explain import explain
from netfold.sim.scenario.node import Node

SWEEP = "sweep"  # the key
POINTS_MAX = 10_000
_NOT_SWEPT = ("name", "description", "baseline", SWEEP)
_FORM = "a sweep is a mapping such as {workers: [4, 16], seeds: 3}"

Seed = Annotated[int, Field(ge=0, lt=2**63)]
Change = tuple[tuple[str, ...], Node]  # a path, and the value that it gets


def _require_seeds(value: object) -> object:
    """Refuse what is neither a number nor a list with one message, instead of one for each."""
    listed, least = (value, 0) if isinstance(value, tuple) else ((value,), 1)
    wrong = [one for one in listed if type(one) is not int or not least <= one < 2**63]
    if not listed or wrong:
        found = shown(wrong[0] if wrong else value)
        raise ValueError(f"must be a number of repeats or a list of seeds, found {found}")
    return value


class SweepOptions(Section):
    """What a sweep says besides its keys and their values."""

    seeds: Annotated[Count | tuple[Seed, ...], BeforeValidator(_require_seeds)] = 1
    """How often each point is repeated: the scenario's seed, and others drawn from it; or a list of seeds."""
    impossible: Literal["refuse", "skip"] = "refuse"
    """A point that cannot run, such as more workers than hosts: refuse the sweep, or leave out the point."""


OPTIONS = tuple(SweepOptions.model_fields)


@dataclass(frozen=True)
class Axis:
    """A swept key and its values."""

    path: str  # as `--set` takes it
    values: tuple[Node, ...]  # each one's path is that of the key


@dataclass(frozen=True)
class Sweep:
    """A grid of points: the product of its axes, every point with each seed."""

    axes: tuple[Axis, ...]
    seeds: int | tuple[int, ...]  # how many, or which
    skips_impossible: bool
    node: Node  # where errors about the whole point to

    @property
    def size(self) -> int:
        """Number of points."""
        repeats = self.seeds if isinstance(self.seeds, int) else len(self.seeds)
        return prod(len(axis.values) for axis in self.axes) * repeats

    @property
    def first(self) -> tuple[Change, ...]:
        """The changes of the first point, without its seed."""
        return tuple(change(axis.values[0]) for axis in self.axes)

    @property
    def singles(self) -> Iterator[tuple[Change, ...]]:
        """The changes of points in which one key at a time has another value than its first."""
        for place, axis in enumerate(self.axes):
            for value in axis.values[1:]:
                yield (*self.first[:place], change(value), *self.first[place + 1 :])


def change(value: Node) -> Change:
    """The change that gives a key of a sweep one of its values."""
    return tuple(value.path.split(".")), value


def read_sweep(document: Node, changes: Iterable[Change], mistakes: Mistakes) -> Sweep | None:
    """The sweep of a document after the changes of the command line; None without one, or with mistakes."""
    node = document.children.get(SWEEP)
    for path, value in changes:
        if path == (SWEEP,):
            node = value
        elif path[0] == SWEEP:
            others = node.children if node is not None else {}
            node = replace(node or value, value={**others, ".".join(path[1:]): value}, path=SWEEP)
    if node is None or node.value is None:
        return None
    if not isinstance(node.value, Mapping):
        mistakes.add(node.error(f"must be a mapping, found {shown(node.plain)}", _FORM))
        return None
    found = len(mistakes.found)
    swept = Sweep(*_split(node, mistakes), node)
    if len(mistakes.found) == found:
        _check_size(swept, mistakes)
    return swept if len(mistakes.found) == found else None


def _check_size(swept: Sweep, mistakes: Mistakes) -> None:
    if swept.size > POINTS_MAX:
        message = f"spans {swept.size:,} points, the most is {POINTS_MAX:,}"
        mistakes.add(swept.node.error(message, "use fewer values, or several sweeps"))
    if not swept.axes and swept.seeds == 1:
        mistakes.add(swept.node.error("sweeps nothing", _FORM))


def _split(node: Node, mistakes: Mistakes) -> tuple[tuple[Axis, ...], int | tuple[int, ...], bool]:
    """The axes, the seeds, and whether impossible points are left out."""
    children = node.children
    seeds = children.pop("seed", None)
    if seeds is not None and "seeds" in children:
        mistakes.add(seeds.error("is swept by `seeds` already", "remove one of the two"))
    elif seeds is not None and not isinstance(seeds.value, tuple):
        count = f"for {seeds.plain} repeats, " if isinstance(seeds.value, int) else ""
        mistakes.add(seeds.error("must be a list of seeds", f"{count}use `seeds`, which also takes a number"))
    elif seeds is not None:
        children["seeds"] = seeds
    given = replace(node, value={key: children.pop(key) for key in OPTIONS if key in children})
    options = SweepOptions()
    try:
        options = SweepOptions.model_validate(given.plain)
    except ValidationError as error:
        mistakes.add(explain(error, given, SweepOptions))
    axes = tuple(axis for key, one in children.items() if (axis := _axis(key, one, mistakes)))
    return axes, options.seeds, options.impossible == "skip"


def _axis(path: str, node: Node, mistakes: Mistakes) -> Axis | None:
    """A key with its values; None if there is a mistake in it."""
    if path in _NOT_SWEPT or not all(path.split(".")):
        hint = "give a path as --set takes it, for example topology.rate"
        mistakes.add(node.error(f"cannot sweep {shown(path)}", hint))
    elif not isinstance(node.value, tuple) or not node.value:
        hint = f"for example {path}: [1, 2]"
        if isinstance(node.value, Mapping):
            hint = "write the path with dots, for example topology.rate: [10Gbps, 100Gbps]"
        mistakes.add(node.error(f"must be a list of values, found {shown(node.plain)}", hint))
    else:
        return Axis(path, tuple(_moved(value, path) for value in node.value))
    return None


def _moved(node: Node, path: str) -> Node:
    """A value as if it were written at another path, on its own line."""
    value = node.value
    if isinstance(value, Mapping):
        value = {key: _moved(child, f"{path}.{key}") for key, child in value.items()}
    elif isinstance(value, tuple):
        labels = node.children
        value = tuple(_moved(item, f"{path}.{label}") for label, item in labels.items())
    return replace(node, value=value, path=path)


def sweep_schema() -> dict[str, Any]:
    """The JSON Schema of the key."""
    options = SweepOptions.model_json_schema(mode="serialization")
    values = {"description": "The values of this key.", "type": "array", "minItems": 1}
    return {
        "description": "A grid of points: keys as `--set` takes them, each with a list of values.",
        "type": ["object", "null"],
        "properties": {**options["properties"], "seed": {**values, "description": "The same as `seeds`."}},
        "additionalProperties": values,
    }

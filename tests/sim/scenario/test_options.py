"""Options: frozen dataclasses whose fields are the keys of a scenario, found by their kind."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import pytest
from pydantic import Field, ValidationError

from netfold import kinds
from netfold.errors import OptionError
from netfold.kinds import family, register
from netfold.sim.keys import NO_KEY, ByKind, Count, Option, Section, Time, keys, read, written
from netfold.sim.plan.host_profiles import HostProfile
from netfold.sim.scenario.faults import BurstLoss, Loss, SwitchReboot
from netfold.sim.scenario.variant_keys import FixedArrivals


class Shape(Option):
    """A family of a test."""

    kind: ClassVar[str]


@dataclass(frozen=True)
class Edge(Option):
    """A part of a shape, without a kind."""

    delay_ps: Time = 0
    """How long it is."""


@dataclass(frozen=True)
class Square(Shape):
    """A square."""

    kind: ClassVar[str] = "square"
    side: Count
    """Its side."""
    edge: Edge = Edge()
    """What its edges are."""
    begin_ps: Annotated[Time, Field(alias="from")] = 0
    """When it begins."""
    cost: int = field(default=7, metadata=NO_KEY)

    def __post_init__(self) -> None:
        if self.side == 13:
            raise ValueError("side is unlucky\nuse another")


class Drawing(Section):
    """What holds a shape."""

    shape: Annotated[Shape, ByKind()] = Square(2)
    """What is drawn."""


@pytest.fixture(autouse=True)
def shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "_families", dict(kinds._families))
    family("shapes")(Shape)
    register(Square)


def drawn(shape: object) -> Shape:
    return Drawing.model_validate({"shape": shape}).shape


def refused(shape: object) -> list[tuple[str, tuple[object, ...]]]:
    with pytest.raises(ValidationError) as caught:
        drawn(shape)
    return [(error["type"], error["loc"]) for error in caught.value.errors()]


def test_a_mapping_becomes_the_option_of_its_kind() -> None:
    """Texts with units are numbers in fields that name the unit; keys are the fields without it."""
    whole = {"kind": "square", "side": 3, "edge": {"delay": "2ns"}, "from": "1us"}

    assert drawn(whole) == Square(3, Edge(2000), 1_000_000)
    assert drawn({"kind": "square", "side": 3}) == Square(3)
    assert written(Square(3, Edge(2000), 1_000_000)) == whole
    assert written(Square(3), exclude_defaults=True) == {"kind": "square", "side": 3}
    assert Drawing(shape=Square(3)).model_dump()["shape"]["side"] == 3


@pytest.mark.parametrize(
    ("shape", "mistakes"),
    [
        ({"kind": "square"}, [("missing", ("shape", "square", "side"))]),
        ({"kind": "square", "side": "3"}, [("int_type", ("shape", "square", "side"))]),
        ({"kind": "square", "side": 0}, [("greater_than_equal", ("shape", "square", "side"))]),
        (
            {"kind": "square", "side": 3, "sid": 1},
            [("unexpected_keyword_argument", ("shape", "square", "sid"))],
        ),
        (
            {"kind": "square", "side": 3, "cost": 1},
            [("unexpected_keyword_argument", ("shape", "square", "cost"))],
        ),
        ({"kind": "square", "side": 3, "edge": 4}, [("dataclass_type", ("shape", "square", "edge"))]),
        ({"kind": "square", "side": 13}, [("value_error", ("shape", "square"))]),
        ({"kind": "circle"}, [("union_tag_invalid", ("shape",))]),
        ({"side": 3}, [("union_tag_not_found", ("shape",))]),
    ],
)
def test_a_mistake_has_its_place(shape: object, mistakes: list[tuple[str, tuple[object, ...]]]) -> None:
    assert refused(shape) == mistakes


def test_keys_and_schema_come_from_the_fields() -> None:
    described = keys(Square)
    assert list(described) == ["kind", "side", "edge", "from"]
    assert described["from"].description == "When it begins."

    schema = Drawing.model_json_schema(mode="serialization")
    square = schema["$defs"]["Square"]
    assert list(square["properties"]) == ["kind", "side", "edge", "from"]
    assert square["properties"]["kind"]["const"] == "square"
    assert square["properties"]["edge"]["default"] == {"delay": "0ps"}
    assert schema["properties"]["shape"]["default"] == written(Square(2))


@pytest.mark.parametrize(
    ("make", "key", "told"),
    [
        (lambda: Loss(rate=0.1, begin_ps=5, until_ps=5), "until", "5ps is not after from, 5ps"),
        (
            lambda: BurstLoss(good_to_bad=0.1, bad_to_good=0.1, begin_ps=2, until_ps=1),
            "until",
            "1ps is not after from, 2ps",
        ),
        (
            lambda: BurstLoss(good_to_bad=0.1, bad_to_good=0.1, loss_bad=0.25, loss_good=0.5),
            "loss_good",
            "50% is more than loss_bad, 25%",
        ),
        (
            lambda: SwitchReboot(switch="s0", at_ps=0, clears="registers", duration_ps=1),
            "for",
            "cleared registers are usable at once",
        ),
        (lambda: FixedArrivals(()), "at", "must have at least one time"),
        (lambda: FixedArrivals((2, 1)), "at", "times must be in order, found 1ps after 2ps"),
    ],
)
def test_a_rule_of_files_holds_in_python_too(make: Callable[[], Option], key: str, told: str) -> None:
    with pytest.raises(OptionError) as caught:
        make()

    assert caught.value.key == key
    assert str(caught.value).startswith(told)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_what_is_of_no_family_or_kind_is_refused() -> None:
    class Nothing:
        kind = "nothing"

    class Nameless(Shape):
        pass

    with pytest.raises(TypeError, match=r"Nothing is no option of a scenario: derive it from one of .*Shape"):
        register(Nothing)
    with pytest.raises(TypeError, match="Nameless has no kind"):
        register(Nameless)


def test_an_option_of_a_file_equals_one_that_is_made_in_python() -> None:
    """Also in fields that no file can set, and whose defaults are made anew."""
    assert read(HostProfile, {"kind": "dpdk", "cores": 4}) == HostProfile(kind="dpdk", cores=4)
    assert read(HostProfile, {}).sources == {}

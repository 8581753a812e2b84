"""The registry: one way for netfold's own options, a user's, and those of installed packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from netfold import kinds
from netfold.errors import NetfoldError
from netfold.kinds import family, register, registered


class Shape:
    """A family of a test."""


class Named(Shape):
    kind: ClassVar[str] = "named"


@dataclass(frozen=True)
class Row(Shape):
    """A row of a table."""

    name: str
    size: int = 0


@pytest.fixture(autouse=True)
def shapes() -> Iterator[None]:
    """A family that is new to every test."""
    family("shapes")(Shape)
    kinds._entry_points.cache_clear()
    yield
    del kinds._families[Shape]
    kinds._entry_points.cache_clear()


def test_classes_and_rows_are_known_by_kind() -> None:
    assert register(Named) is Named
    register(Row("row"))
    assert registered(Shape) == {"named": Named, "row": Row("row")}
    assert registered(Row) == {}  # no family


def test_a_second_one_of_a_kind_is_refused_and_both_are_named() -> None:
    class Other(Shape):
        kind: ClassVar[str] = "named"

    register(Named)
    with pytest.raises(ValueError) as caught:
        register(Other)

    here = f"{__name__}.{test_a_second_one_of_a_kind_is_refused_and_both_are_named.__qualname__}"
    assert str(caught.value) == (
        f"two of netfold.shapes have the kind 'named': {__name__}.Named and {here}.<locals>.Other; "
        "give one of them another kind"
    )
    register(Row("row"))
    with pytest.raises(ValueError, match=r"kind 'row': Row 'row' of .*test_kinds and Row 'row' of"):
        register(Row("row", 1))
    assert registered(Shape) == {"named": Named, "row": Row("row")}


def test_the_same_one_again_and_a_class_that_is_defined_again_are_no_second_ones() -> None:
    def again() -> type[Shape]:
        class Again(Shape):
            kind: ClassVar[str] = "again"

        return Again

    first, second = again(), again()
    for each in (first, first, second):
        register(each)
    assert registered(Shape) == {"again": second}


def test_netfolds_own_are_there_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever takes a kind of netfold's is told so at once, although nothing has looked yet."""
    (tmp_path / "home_of_shapes.py").write_text(
        f"from {__name__} import Shape\n"
        "from netfold import kinds\n"
        "class Own(Shape):\n"
        "    kind = 'named'\n"
        "kinds.register(Own)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    family("shapes", "home_of_shapes")(Shape)

    with pytest.raises(ValueError, match=r"home_of_shapes\.Own and .*\.Named"):
        register(Named)
    del sys.modules["home_of_shapes"]


def installed(folder: Path, group: str, value: str, source: str) -> None:
    """A package as `pip install` leaves it."""
    (folder / "toy_package.py").write_text(source)
    about = folder / "toy_package-1.0.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\nmine = {value}\n")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("toy_package", None)


SOURCE = f"""
from {__name__} import Shape
from netfold.kinds import register, registered

class Square(Shape):
    kind = "square"

register(Square)
assert "square" in registered(Shape)  # it may look while it is imported

class Circle(Shape):
    kind = "circle"

class Stranger:
    kind = "stranger"

class Rival(Shape):
    kind = "named"
"""


@pytest.mark.parametrize(("value", "kinds_known"), [("Square", ["square"]), ("Circle", ["square", "circle"])])
def test_an_installed_package_announces_its_own(folder: Path, value: str, kinds_known: list[str]) -> None:
    """Whether its module registers them or not."""
    installed(folder, "netfold.shapes", f"toy_package:{value}", SOURCE)

    assert list(registered(Shape)) == kinds_known
    assert registered(Shape) == registered(Shape)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("toy_package:Triangle", "AttributeError: module 'toy_package' has no attribute 'Triangle'"),
        ("toy_package:Stranger", "TypeError: Stranger is no option of a scenario: derive it from one of "),
        ("toy_package:Rival", "ValueError: two of netfold.shapes have the kind 'named': "),
        ("no_package:Square", "ModuleNotFoundError: No module named 'no_package'"),
    ],
)
def test_one_that_cannot_be_had_is_told_with_its_package(folder: Path, value: str, told: str) -> None:
    """Every time that somebody looks."""
    register(Named)
    installed(folder, "netfold.shapes", value, SOURCE)

    for _ in range(2):
        with pytest.raises(NetfoldError) as caught:
            registered(Shape)
        assert caught.value.message.startswith(
            f"package toy-package: cannot use {value}, its entry point 'mine' of netfold.shapes: {told}"
        )
        assert caught.value.hint == "update or uninstall the package"

"""What a scenario can name: one registry of classes, by family and kind."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T", bound=type[Any])

_families: dict[type[Any], dict[str, type[Any]]] = {}


def family(base: T) -> T:
    """Class decorator: subclasses of this class are registered together, each under a `kind` of its own."""
    _families[base] = {}
    return base


def register(option: T) -> T:
    """Class decorator: make a class known under its `kind`, in the family that it belongs to.

    Raises
    ------
    TypeError
        It is of no family, or has no `kind`.
    """
    base = next((base for base in option.__mro__ if base in _families), None)
    if base is None:
        known = ", ".join(sorted(base.__name__ for base in _families))
        raise TypeError(f"{option.__name__} is no option of a scenario: derive it from one of {known}")
    kind = getattr(option, "kind", None)
    if not isinstance(kind, str) or not kind:
        raise TypeError(f'{option.__name__} has no kind: give it kind: ClassVar[str] = "its-name"')
    _families[base][kind] = option
    return option


def registered(base: type[Any]) -> dict[str, type[Any]]:
    """The classes of a family by kind, in the order in which they were registered; none of another class."""
    return dict(_families.get(base, {}))

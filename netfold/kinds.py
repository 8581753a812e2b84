"""What a scenario can name: one registry, for netfold's own, for users' and for those of installed packages.

A family is a base class (codecs, topologies, devices …). Its members are classes derived from it, or objects
of it, and each has a `kind` (or a `name`) of its own. `register` makes one known. A package that is installed
says in its `pyproject.toml` where its own are, under the name of the family:

    [project.entry-points."netfold.codecs"]
    mine = "my_package.my_module:MyCodec"
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints, distributions
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, TypeVar

from netfold.errors import NetfoldError

T = TypeVar("T")
B = TypeVar("B", bound=type[Any])


@dataclass
class _Family:
    noun: str
    home: str
    """The module that registers netfold's own, or the package with a file for each; empty: whoever looks has
    imported it."""
    members: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    """Where each is from, by kind."""
    has_installed: bool = False


_families: dict[type[Any], _Family] = {}


def family(noun: str, home: str = "") -> Callable[[B], B]:
    """Class decorator: what derives from this class is registered together, each under a kind of its own.

    `noun` is the plural in the names of entry points, "netfold.codecs"; `home` the module whose import
    registers netfold's own, or a package whose files do.
    """

    def mark(base: B) -> B:
        _families[base] = _Family(noun, home)
        return base

    return mark


def register(option: T) -> T:
    """Make a class, or an object of a table, known under its kind; may decorate the class.

    Raises
    ------
    TypeError
        It is of no family, or has no kind.
    ValueError
        Another one has this kind. A class that is defined again, as in a notebook, takes its own place.
    """
    cls: type[Any] = option if isinstance(option, type) else type(option)
    base = next((base for base in cls.__mro__ if base in _families), None)
    if base is None:
        known = ", ".join(sorted(base.__name__ for base in _families))
        raise TypeError(f"{cls.__name__} is no option of a scenario: derive it from one of {known}")
    kind = getattr(option, "kind", None) or getattr(option, "name", None)
    if kind is None and option is cls and "kind" in getattr(cls, "model_fields", {}):  # of pydantic
        kind = cls.model_fields["kind"].default
    if not isinstance(kind, str):
        raise TypeError(f'{cls.__name__} has no kind: give it kind: ClassVar[str] = "its-name"')
    module = cls.__module__ if option is cls else str(sys._getframe(1).f_globals.get("__name__"))
    if hasattr(option, "check_registered"):
        option.check_registered()
    members = _families[base]
    if module.partition(".")[0] != members.home.partition(".")[0]:
        _import_home(members.home)
    origin = f"{module}.{cls.__qualname__}" if option is cls else f"{cls.__name__} {kind!r} of {module}"
    if kind in members.members and members.members[kind] is not option:
        other = members.origins[kind]
        if origin != other or (option is not cls and module != "__main__"):
            raise ValueError(
                f"two of netfold.{members.noun} have the kind {kind!r}: {other} and {origin}; "
                "give one of them another kind"
            )
    members.members[kind], members.origins[kind] = option, origin
    return option


def registered(base: type[Any]) -> dict[str, Any]:
    """The members of a family by kind, in the order in which they were registered; none of another class.

    Raises
    ------
    NetfoldError
        An installed package announces one that cannot be had.
    """
    if base not in _families:
        return {}
    _import_home(_families[base].home)
    members = _families[base]
    if not members.has_installed:
        members.has_installed = True  # a package may look, too, while it is imported
        try:
            for entry in _entry_points().select(group=f"netfold.{members.noun}"):
                _add_installed(base, entry)
        except NetfoldError:
            members.has_installed = False
            raise
    return dict(members.members)


def modules_of(package: str) -> Iterator[ModuleType]:
    """The modules of a package, which are imported, in the order of their names: a file for each kind."""
    for module in iter_modules(getattr(import_module(package), "__path__", ())):
        yield import_module(f"{package}.{module.name}")


@cache
def _import_home(home: str) -> None:
    list(modules_of(home) if home else ())


@cache
def _entry_points() -> EntryPoints:
    # Of all installed packages; reading them takes some milliseconds.
    return EntryPoints(entry for package in distributions() for entry in package.entry_points)


def _add_installed(base: type[Any], entry: EntryPoint) -> None:
    """Import what a package announces, and register it if its module has not."""
    members = _families[base].members
    try:
        option = entry.load()
        if not any(option is known for known in members.values()):
            register(option)
        if not any(option is known for known in members.values()):
            raise TypeError(f"it is not derived from {base.__name__}")
    except Exception as error:
        package = entry.dist.name if entry.dist else "unknown"
        raise NetfoldError(
            f"package {package}: cannot use {entry.value}, its entry point {entry.name!r} of {entry.group}: "
            f"{type(error).__name__}: {error}",
            "update or uninstall the package",
        ) from error

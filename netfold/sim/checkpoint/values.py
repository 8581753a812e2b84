"""Data as JSON and arrays, and back: numbers, text, containers, records and arrays, each with its exact type.

A record is a dataclass, a named tuple or an enumeration of netfold. It is read back by its fields: no
constructor runs, and only modules of netfold are looked into.
"""

from __future__ import annotations

import importlib
from collections import Counter, defaultdict, deque
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

OWN = "netfold."  # the package whose records are stored
_CONTAINERS: dict[str, type[Any]] = {"l": list, "t": tuple, "s": set, "z": frozenset, "q": deque}
_MAPPINGS: dict[str, type[Any]] = {"m": dict, "c": Counter}


class UnstorableError(Exception):
    """A value is not data: an open process, for example. The message says what it is."""


class DamagedError(Exception):
    """What is stored does not fit what it is read into."""


def is_record(value: object) -> bool:
    """Whether a value is a record of netfold."""
    kind = type(value)
    is_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return kind.__module__.startswith(OWN) and (is_tuple or is_dataclass(kind) or issubclass(kind, Enum))


class Writer:
    """Turns values into JSON; arrays are kept apart."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[Any]] = []
        self.types: list[str] = []
        self._numbers: dict[type[Any], int] = {}

    def write(self, value: Any) -> Any:
        """The JSON of a value.

        Raises
        ------
        UnstorableError
            It is not data.
        """
        kind = type(value)
        if value is None or kind in (bool, int, str, float):
            return value
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                raise UnstorableError("an array of objects")
            self.arrays.append(np.ascontiguousarray(value))
            return ["a", len(self.arrays) - 1, list(value.shape), bool(value.flags.writeable)]
        if isinstance(value, np.generic):
            return ["n", value.dtype.str, np.asarray(value).tobytes().hex()]
        if kind is Fraction:
            return ["f", value.numerator, value.denominator]
        if is_record(value):
            return self._record(value)
        for name, container in _CONTAINERS.items():
            if kind is container:
                items = sorted(value) if kind in (set, frozenset) else value
                length = value.maxlen if kind is deque else None
                return [name, [self.write(one) for one in items], *([length] if kind is deque else [])]
        if kind in (dict, Counter, defaultdict):
            name = "c" if kind is Counter else "m"
            return [name, [[self.write(key), self.write(one)] for key, one in value.items()]]
        raise UnstorableError(f"a {kind.__module__}.{kind.__qualname__}")

    def _record(self, value: Any) -> Any:
        kind = type(value)
        if kind not in self._numbers:
            self._numbers[kind] = len(self.types)
            self.types.append(f"{kind.__module__}:{kind.__qualname__}")
        number = self._numbers[kind]
        if isinstance(value, Enum):
            return ["e", number, value.name]
        if isinstance(value, tuple):
            return ["u", number, [self.write(one) for one in value]]
        return ["r", number, [self.write(getattr(value, field.name)) for field in fields(value)]]


class Reader:
    """Turns JSON and arrays back into values."""

    def __init__(self, arrays: list[NDArray[Any]], types: list[str]) -> None:
        self._arrays = arrays
        self._types = [_type_named(name) for name in types]

    def read(self, stored: Any) -> Any:
        """The value that was written.

        Raises
        ------
        DamagedError
            Nothing is written so.
        """
        try:
            return self._read(stored)
        except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedError(f"it holds what cannot be read ({error})") from error

    def _read(self, stored: Any) -> Any:
        if not isinstance(stored, list):
            return stored
        match stored:
            case ["a", number, shape, is_writeable]:
                array = self._arrays[number].reshape(shape).copy()
                array.flags.writeable = is_writeable
                return array
            case ["n", dtype, content]:
                return np.frombuffer(bytes.fromhex(content), dtype)[0]
            case ["f", numerator, denominator]:
                return Fraction(numerator, denominator)
            case ["q", items, length]:
                return deque((self._read(one) for one in items), length)
            case [("m" | "c") as name, pairs]:
                return _MAPPINGS[name]({self._read(key): self._read(one) for key, one in pairs})
            case ["e", number, member]:
                return self._types[number][member]
            case ["u", number, items]:
                return self._types[number]._make(self._read(one) for one in items)
            case ["r", number, items]:
                return self._record(self._types[number], items)
            case [name, items]:
                return _CONTAINERS[name](self._read(one) for one in items)
        raise DamagedError("it holds what cannot be read")

    def _record(self, kind: type[Any], items: list[Any]) -> Any:
        value = object.__new__(kind)
        for field, one in zip(fields(kind), items, strict=True):
            object.__setattr__(value, field.name, self._read(one))
        return value


def _type_named(name: str) -> Any:
    """A record's type, of a module of netfold."""
    module, _, path = name.partition(":")
    found: Any = None
    if module.startswith(OWN):
        try:
            found = importlib.import_module(module)
        except ImportError:
            found = None
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not (
        is_dataclass(found) or issubclass(found, Enum) or hasattr(found, "_fields")
    ):
        raise DamagedError(f"it holds a record that is not known, {name}")
    return found

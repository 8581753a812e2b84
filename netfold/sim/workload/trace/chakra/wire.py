"""Protobuf's wire format, as far as execution traces need it (protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

from collections.abc import Iterator

Value = int | bytes  # of a varint or a fixed number, or what has a length
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5  # types on the wire
_VARINT_BITS = 64


class WireError(ValueError):
    """Bytes that are no message."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and the place after it.

    Raises
    ------
    WireError
        The data ends inside it, or it has more than 64 bits.
    """
    found, shift = 0, 0
    while shift < _VARINT_BITS:
        if at >= len(data):
            raise WireError("it ends inside a number")
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found & (2**_VARINT_BITS - 1), at
        shift += 7
    raise WireError("a number has more than 64 bits")


def fields(data: bytes) -> Iterator[tuple[int, int, Value]]:
    """The fields of a message, in order: number, type on the wire, and value.

    Raises
    ------
    WireError
        The data is no message.
    """
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise WireError("a field has the number 0")
        if kind == VARINT:
            value: Value
            value, at = varint(data, at)
        elif kind == LENGTH:
            size, at = varint(data, at)
            value, at = _taken(data, at, size), at + size
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
            value, at = int.from_bytes(_taken(data, at, size), "little"), at + size
        else:
            raise WireError(f"a field has the type {kind}")
        yield number, kind, value


def numbers(kind: int, value: Value) -> list[int]:
    """The numbers of a repeated field: one, or all of them packed.

    Raises
    ------
    WireError
        They end too early.
    """
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        one, at = varint(value, at)
        found.append(one)
    return found


def signed(value: int) -> int:
    """A varint as int64."""
    return value - 2**64 if value >= 2**63 else value


def _taken(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise WireError("it ends inside a field")
    return data[at : at + size]

"""Ways to damage a run folder: every value of its JSON files in turn, and the bytes of any file."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

ODD: tuple[Any, ...] = (None, True, -1, 0, 10**400, 1e308, "", "text", [], {}, [None], {"x": [1]})
MISSING = object()
Place = tuple[str | int, ...]


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Where the values of plain data are, the outermost first."""
    yield place
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, child in children:
        yield from places(child, (*place, key))


def changed(value: Any, place: Place, new: Any) -> Any:
    """Plain data with another value at a place, or without it if that is MISSING."""
    if not place:
        return None if new is MISSING else new
    value = copy.deepcopy(value)
    holder = value
    for key in place[:-1]:
        holder = holder[key]
    if new is MISSING:
        del holder[place[-1]]
    else:
        holder[place[-1]] = new
    return value


def damaged(content: bytes, seed: int) -> bytes:
    """Bytes cut short, changed here and there, or with others between them."""
    drawn = random.Random(seed)
    place = drawn.randrange(len(content))
    way = drawn.randrange(4)
    if way == 0:
        return content[:place]
    if way == 1:
        return content[:place] + drawn.randbytes(drawn.randrange(1, 9)) + content[place:]
    if way == 2:
        return content[:place] + content[place + drawn.randrange(1, 40) :]
    several = bytearray(content)
    for _ in range(drawn.randrange(1, 5)):
        several[drawn.randrange(len(content))] = drawn.randrange(256)
    return bytes(several)

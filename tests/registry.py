"""Options that only tests know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from netfold import kinds


@contextmanager
def registered(*options: object) -> Iterator[None]:
    """Known by their kinds in a block, and nowhere after it."""
    with pytest.MonkeyPatch.context() as patch:
        known(patch, *options)
        yield


def known(patch: pytest.MonkeyPatch, *options: object) -> None:
    """Known by their kinds until the patches are undone."""
    for option in options:
        kinds.register(option)
        members, kind = next(
            (members, kind)
            for members in kinds._families.values()
            for kind, member in members.members.items()
            if member is option
        )
        for table in (members.members, members.origins):
            value = table.pop(kind)
            patch.setitem(table, kind, value)  # type: ignore[call-overload]

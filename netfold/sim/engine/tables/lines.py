"""Rows that begin with a cache line of their own."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

LINE_BYTES = 64


def in_lines(fields: list[tuple[str, str]]) -> np.dtype[Any]:
    """A row of aligned fields that is as long as whole cache lines.

    In a table that begins with a line, no row then lies in a line more than it must.
    """
    row: np.dtype[Any] = np.dtype(cast(Any, fields), align=True)
    placed: Any = row.fields
    names = [name for name, _ in fields]
    return np.dtype(
        {
            "names": names,
            "formats": [row[name] for name in names],
            "offsets": [placed[name][1] for name in names],
            "itemsize": -(-row.itemsize // LINE_BYTES) * LINE_BYTES,
        },
        align=True,
    )

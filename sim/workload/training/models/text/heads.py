"""Heads of attention."""

from __future__ import annotations


def check_heads(heads: int, width: int) -> None:
    """Require heads that divide the width.

    Raises
    ------
    ValueError
        They do not; a hint is on the second line.
    """
    if width % heads:
        raise ValueError(f"{heads} heads do not divide the width {width}\nuse a multiple of {heads}")

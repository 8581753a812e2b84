"""Options that several models of text have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netfold.sim.keys.fields import count_of

if TYPE_CHECKING:
    Tokens = int
    Pieces = int
    Sequence = int
else:
    Tokens = count_of(2)  # of a vocabulary: one stands for all that it leaves out
    Pieces = count_of(1000)  # of a vocabulary: more than the special ones and the characters
    Sequence = count_of(16)  # tokens, so that there is room for a question and a text


def check_heads(heads: int, width: int) -> None:
    """Require heads that divide the width.

    Raises
    ------
    ValueError
        They do not; a hint is on the second line.
    """
    if width % heads:
        raise ValueError(f"{heads} heads do not divide the width {width}\nuse a multiple of {heads}")

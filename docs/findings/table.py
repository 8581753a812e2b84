"""Tables whose lines are computed one by one, and the page that holds them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests import ROOT

PAGE = ROOT / "docs" / "systems" / "lossless.md"

Cells = tuple[str, ...]


class Line(NamedTuple):
    """One line of a table: its label, and the function that computes its figures."""

    label: Cells
    figures: Callable[[], Cells]
    is_quick: bool  # a test computes it again; its figures must then be the same on any machine


class Table(NamedTuple):
    """A table of the page."""

    name: str
    heading: Cells
    lines: tuple[Line, ...]

    def markdown(self) -> str:
        """The whole table, computed again."""
        rows = (written(line.label + line.figures()) for line in self.lines)
        return "\n".join([written(self.heading), "|" + "---|" * len(self.heading), *rows])


def written(cells: Cells) -> str:
    """A line of a table."""
    return "| " + " | ".join(cells) + " |"


def shown(name: str) -> list[Cells]:
    """The lines of a table in the page, without its heading."""
    begin, end = _marks(name)
    text = PAGE.read_text("utf-8").partition(begin)[2].partition(end)[0]
    return [tuple(line.strip("| ").split(" | ")) for line in text.strip().splitlines()[2:]]


def replaced(page: str, name: str, markdown: str) -> str:
    """The page with one table replaced."""
    begin, end = _marks(name)
    before, found, rest = page.partition(begin)
    assert found, f"the page has no place for table {name}: {begin}"
    return f"{before}{begin}\n\n{markdown}\n\n{end}{rest.partition(end)[2]}"


def names(page: str) -> list[str]:
    """Names of the tables that a page has places for."""
    return re.findall(r"<!-- table: (\S+) -->", page)


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- table: {name} -->", f"<!-- end of table: {name} -->"


def digits(figure: float, significant: int = 2) -> str:
    """A figure with this number of significant digits."""
    if figure == 0:
        return "0"
    if not 1e-3 <= abs(figure) < 1e5:
        mantissa, exponent = f"{figure:.{significant - 1}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    rounded = float(f"{figure:.{significant - 1}e}")
    decimals = max(0, significant - 1 - int(f"{rounded:e}".split("e")[1]))
    return f"{rounded:.{decimals}f}"


def percent(shares: Sequence[float]) -> str:
    """Mean of some shares in %, and their range if they differ."""
    mean = digits(100 * sum(shares) / len(shares))
    low, high = digits(100 * min(shares)), digits(100 * max(shares))
    return mean if low == high else f"{mean} ({low}–{high})"

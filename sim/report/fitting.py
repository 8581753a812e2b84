"""A table that leaves out columns when the terminal is narrow, and never a part of a name."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_ANY_WIDTH = 100_000


class FittingTable(Table):
    """A table with a line above it and notes below it.

    `dispensable` lists groups of column numbers: as many groups as must go for the rest to fit are left out,
    the first one first. Nothing is folded and no line ends in spaces.
    """

    def __init__(self, heading: str, dispensable: Sequence[Sequence[int]], notes: Sequence[str] = ()) -> None:
        super().__init__()
        self._heading = heading
        self._dispensable = dispensable
        self._notes = notes

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._heading:
            yield Text(self._heading, style="italic")
        unlimited = options.update(max_width=_ANY_WIDTH)
        for groups_count in range(len(self._dispensable) + 1):
            left_out = {number for group in self._dispensable[:groups_count] for number in group}
            table = self._without(left_out)
            width = console.measure(table, options=unlimited).maximum
            if width <= options.max_width:
                break
        yield from console.render(table, options.update(max_width=max(width, options.max_width)))
        for note in self._notes:
            lines = textwrap.wrap(note, options.max_width, break_long_words=False, break_on_hyphens=False)
            yield Text("\n".join(lines), no_wrap=True, overflow="ignore")

    def _without(self, left_out: set[int]) -> Table:
        kept = [column for number, column in enumerate(self.columns) if number not in left_out]
        table = Table()
        for column in kept:
            table.add_column(column.header, justify=column.justify, no_wrap=True)
        for cells in zip(*(column.cells for column in kept), strict=True):
            table.add_row(*cells)
        return table

"""A table that is broken into several in a narrow terminal, so that no column is left out."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_ANY_WIDTH = 100_000


class FittingTable(Table):
    """A table with a line above it and notes below it.

    If its columns do not fit side by side, the table is broken into several, one below the other. All of them
    begin with the first `keys_count` columns. The last column, the verdict, ends the first table if it fits.
    `pairs` are columns that stay with the one to their left, as a ratio does. No cell is wrapped or cut, and
    no line ends in spaces.
    """

    def __init__(
        self, heading: str, notes: Sequence[str] = (), keys_count: int = 1, pairs: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self._heading = heading
        self._keys = tuple(range(keys_count))
        self._pairs = pairs
        self._notes = notes

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._heading:
            yield Text(self._heading, style="italic")
        unlimited = options.update(max_width=_ANY_WIDTH)

        def width(columns: Sequence[int]) -> int:
            return console.measure(self._with(columns), options=unlimited).maximum

        for part in self._parts(lambda columns: width(columns) <= options.max_width):
            broad = options.update(max_width=max(width(part), options.max_width))
            yield from console.render(self._with(part), broad)
        for note in self._notes:
            lines = textwrap.wrap(note, options.max_width, break_long_words=False, break_on_hyphens=False)
            yield Text("\n".join(lines), no_wrap=True, overflow="ignore")

    def _parts(self, fits: Callable[[Sequence[int]], bool]) -> Iterator[tuple[int, ...]]:
        """The columns of each table: as many as fit, but at least one group beside the keys."""
        *groups, last = self._groups()
        if groups and not fits((*self._keys, *groups[0], *last)):
            groups, last = [*groups, last], ()
        held: tuple[int, ...] = ()
        for group in groups:
            if held and not fits((*self._keys, *held, *group, *last)):
                yield (*self._keys, *held, *last)
                held, last = (), ()
            held += group
        yield (*self._keys, *held, *last)

    def _groups(self) -> list[tuple[int, ...]]:
        """Columns other than keys; paired ones form one group."""
        groups: list[tuple[int, ...]] = []
        for number in range(len(self._keys), len(self.columns)):
            if number in self._pairs:
                groups[-1] += (number,)
            else:
                groups.append((number,))
        return groups

    def _with(self, numbers: Sequence[int]) -> Table:
        kept = [self.columns[number] for number in numbers]
        table = Table()
        for column in kept:
            table.add_column(column.header, justify=column.justify, no_wrap=True)
        for cells in zip(*(column.cells for column in kept), strict=True):
            table.add_row(*cells)
        return table

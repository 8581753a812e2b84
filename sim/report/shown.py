"""Results that show themselves: as text when they are printed, as HTML in a notebook."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod

from rich.console import Console
from rich.table import Table

_ANY_WIDTH = 100_000  # columns of a table that does not go to a terminal: as many as it needs
_HTML = '<pre style="line-height: 1.2; overflow-x: auto">{code}</pre>'


class Shown(ABC):
    """What has a table."""

    @abstractmethod
    def table(self) -> Table:
        """The table that the command line prints of it."""

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=_ANY_WIDTH)
        with console.capture() as text:
            console.print(self.table(), crop=False)
        return "\n".join(line.rstrip() for line in text.get().splitlines())

    def _repr_html_(self) -> str:
        console = Console(file=io.StringIO(), width=_ANY_WIDTH, record=True)
        console.print(self.table(), crop=False)
        return console.export_html(inline_styles=True, code_format=_HTML)

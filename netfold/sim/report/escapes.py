"""Text of files on a terminal: control characters are shown, not obeyed.

A file may be somebody else's, and a terminal takes what begins with such a character for a command: it
changes the window's title, moves the cursor, writes over lines.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # C0, DEL and C1, without tabs and line ends


def escaped(text: str) -> str:
    """Text with its control characters written as JSON writes them: \\u001b."""
    return _CONTROL.sub(lambda character: f"\\u{ord(character[0]):04x}", text)


class EscapedTable:
    """A table of rich whose texts are escaped when it is rendered; its own colours are not."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        for segment in console.render(self._table, options):
            yield Segment(escaped(segment.text), segment.style)

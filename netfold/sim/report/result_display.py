"""Results that show themselves: as text when they are printed, as HTML in a notebook."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

_ANY_WIDTH = 100_000  # columns of a table that does not go to a terminal: as many as it needs
_HTML = '<pre style="line-height: 1.2; overflow-x: auto; font-family: monospace">{code}</pre>'


class Svg(bytes):
    """A figure: the bytes of an SVG file, which a notebook draws."""

    def _repr_svg_(self) -> str:
        return self.decode()

    def __repr__(self) -> str:
        return f"<SVG of {len(self)} bytes>"

    __str__ = __repr__

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the file; returns its path."""
        target = Path(path)
        target.write_bytes(self)
        return target


class Shown(ABC):
    """What has a table."""

    @abstractmethod
    def table(self) -> Table:
        """The table that the command line prints of it."""

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=_ANY_WIDTH, force_jupyter=False)
        with console.capture() as text:
            console.print(self.table(), crop=False)
        return "\n".join(line.rstrip() for line in text.get().splitlines())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        # Not for Jupyter: otherwise rich displays what it prints, beside what is returned here.
        console = Console(file=io.StringIO(), width=_ANY_WIDTH, record=True, force_jupyter=False)
        console.print(self.table(), crop=False)
        return console.export_html(inline_styles=True, code_format=_HTML)


class VerbResult(Shown):
    """What a verb came to: the command line, the Python API and notebooks show it, each in the same way."""

    @property
    def passes(self) -> bool:
        # Whether all checks hold; otherwise the command ends with exit status 1.
        return True

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """The object that the command prints with `--json`."""

    def tables(self) -> Sequence[Table]:
        # What the command prints without it: these, and the lines below them.
        return [self.table()]

    def lines(self) -> Sequence[str]:
        return ()

"""Drawings of networks as files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from netfold.errors import NetfoldError, UnwrittenError
from netfold.sim.files.durable import write_file
from netfold.sim.report.style import Svg
from netfold.sim.topology.given import NamedNetwork

SUFFIX = ".svg"


def drawing(network: NamedNetwork) -> Svg:
    """SVG of a network; the same network gives the same bytes."""
    from netfold.sim.report.network_drawing import (
        Look,  # late: matplotlib is slow to import
        draw_svg,  # late: matplotlib is slow to import
    )

    title = network.name if network.name == network.kind else f"{network.name} · {network.kind}"
    return draw_svg(network.graph, Look(title, network.able))


def draw_into(networks: Sequence[NamedNetwork], place: str) -> list[Path]:
    """Draw one network into a file, or all into a folder, which is made; returns the paths.

    Raises
    ------
    NetfoldError
        Several networks are to be drawn into one file.
    UnwrittenError
        A file cannot be written.
    """
    if place.lower().endswith(SUFFIX):
        if len(networks) > 1:
            message = f"{place}: cannot draw {len(networks)} networks into one file"
            raise NetfoldError(message, "give a folder, or choose one with --variant")
        return [write(Path(place), drawing(networks[0]))]
    try:
        Path(place).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnwrittenError(f"cannot make the folder {place}: {error.strerror}") from None
    return [write(Path(place) / f"{_file_name(one.name)}{SUFFIX}", drawing(one)) for one in networks]


def write(path: Path, content: bytes) -> Path:
    """Write a file whole; returns its path.

    Raises
    ------
    UnwrittenError
        It cannot be written.
    """
    try:
        write_file(path, content)
    except OSError as error:
        raise UnwrittenError(f"cannot write {path}: {error.strerror}", "give another path") from None
    return path


def _file_name(name: str) -> str:
    """A name without what file systems do not take."""
    return re.sub(r"[^\w.+-]", "-", name) or "network"

"""Reads the text of a scenario from a file, standard input, or a string."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from netfold.errors import ScenarioError
from netfold.sim.files.foreign import UnreadableError, read_bytes, read_standard_input
from netfold.spelling import closest

SCENARIO_BYTES_MAX = 2**20
STANDARD_INPUT = "-"
_LISTED_MAX = 1000  # files of a folder that are searched for the nearest name


@dataclass(frozen=True)
class ScenarioText:
    """A scenario without a file; its paths are relative to the working folder."""

    text: str
    name: str  # the name in errors


def read_source(path: str | Path | ScenarioText) -> tuple[str, Path, bytes]:
    """The scenario's name in errors, the folder of its paths, and its text; "-" is standard input.

    Raises
    ------
    ScenarioError
        It cannot be read; the hint suggests a file with a similar name.
    """
    if isinstance(path, ScenarioText):
        return path.name, Path(), path.text.encode("utf-8", "surrogatepass")
    try:
        if str(path) == STANDARD_INPUT:
            return "<stdin>", Path(), read_standard_input(SCENARIO_BYTES_MAX)
        return str(path), Path(path).parent, read_bytes(path, SCENARIO_BYTES_MAX)
    except UnreadableError as error:
        hint = error.hint or _near(Path(path), error.is_missing)
        raise ScenarioError(str(path), 0, "", f"cannot be read: {error.message}", hint) from None


def _near(path: Path, is_missing: bool) -> str:
    """A hint that suggests another file."""
    if path.is_dir():
        inside = sorted(str(file) for file in islice(path.glob("*.yaml"), _LISTED_MAX))
        return f"give a file, for example {inside[0]}" if inside else "give the path of a scenario file"
    if not is_missing or not path.parent.is_dir():
        return "give the path of a scenario file"
    siblings = [str(other) for other in islice(path.parent.glob("*.yaml"), _LISTED_MAX) if other.is_file()]
    meant = closest(str(path), siblings)
    return f"did you mean {meant}?" if meant else "give the path of a scenario file"

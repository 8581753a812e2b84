"""The listing of codecs: their kinds, and the meaning and default of every option."""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass, fields
from typing import Any

from netfold.homomorphic.codecs import codec_kinds


@dataclass(frozen=True)
class CodecOption:
    """A key that a codec may have in a scenario."""

    name: str
    default: Any  # a JSON value
    is_required: bool
    meaning: str


@dataclass(frozen=True)
class CodecDescription:
    """A codec that a scenario can name."""

    kind: str
    meaning: str
    status: str  # published, reconstructed or ours
    source: str  # paper or repository; empty: none
    options: tuple[CodecOption, ...]


def listing() -> tuple[CodecDescription, ...]:
    """All codecs; their meanings and those of their options come from the docstrings of their classes."""
    return tuple(_describe(kind, codec) for kind, codec in codec_kinds().items())


def _describe(kind: str, codec: Any) -> CodecDescription:
    meaning, meanings = _docstring(codec.__doc__ or "")
    options = tuple(
        CodecOption(
            field.name,
            None if field.default is MISSING else field.default,
            field.default is MISSING,
            meanings.get(field.name, ""),
        )
        for field in fields(codec)
    )
    return CodecDescription(kind, meaning, codec.origin.status, codec.origin.source, options)


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """The first paragraph, and the meanings of options from lines that begin with "option:"."""
    first, _, rest = text.partition("\n\n")
    lines = "\n".join(line.strip() for line in rest.splitlines())
    options = re.findall(r"^(\w+): (.*?)(?=^\w+: |\Z)", lines, re.MULTILINE | re.DOTALL)
    return " ".join(first.split()), {key: " ".join(meaning.split()) for key, meaning in options}

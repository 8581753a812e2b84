"""The base class of every mapping of a scenario file."""

from __future__ import annotations

from textwrap import fill

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo


class Section(BaseModel):
    """A mapping in the file: strict types, no unknown keys, immutable."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


def described(text: str) -> str:
    """A key's description, wrapped like a docstring."""
    return fill(text, 106, initial_indent="   ").lstrip()


def keys(section: type[Section]) -> dict[str, FieldInfo]:
    """The keys of a section as a file spells them (`from` and `for` are not Python names), `kind` first."""
    written = {field.alias or name: field for name, field in section.model_fields.items()}
    return dict(sorted(written.items(), key=lambda item: item[0] != "kind"))

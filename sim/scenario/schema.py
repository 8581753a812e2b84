"""JSON Schema of a scenario file, for completion and checking while one types.

The schema knows keys, types, ranges and units, but not whether a variant is complete, because a section
may be written in parts, some shared and some in each variant: `netfold validate` says that.
"""

from __future__ import annotations

from typing import Any

from netfold.sim.scenario.models import Header, Settings, Variant
from netfold.sim.scenario.node import EXTENSION

_EXTENSIONS: dict[str, Any] = {f"^{EXTENSION}": {}}  # keys that nobody reads


def schema() -> dict[str, Any]:
    """The schema, draft 2020-12."""
    # In this mode pydantic writes defaults as the file does: "100Gbps", not 100000000000.
    header, settings, variant = (
        model.model_json_schema(mode="serialization") for model in (Header, Settings, Variant)
    )
    definitions = {**header["$defs"], **variant.pop("$defs")}
    definitions["Workers"] = {"anyOf": [definitions["Workers"], {"type": "integer", "minimum": 1}]}
    definitions["SwitchProfile"] = {"anyOf": [definitions["SwitchProfile"], {"type": "string"}]}
    variants = {
        "description": "Alternatives to compare: each has a name and what it changes.",
        "type": "array",
        "minItems": 1,
        "items": _partial(variant) | {"required": ["name"]},
    }
    properties = {**header["properties"], **settings["properties"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "netfold scenario",
        "type": "object",
        "properties": _partial(properties) | {"variants": variants},
        "required": ["name"],
        "additionalProperties": False,
        "patternProperties": _EXTENSIONS,
        "$defs": _partial(definitions),
    }


def _partial(schema: Any) -> Any:
    """A schema that also takes a part of what it describes: no key is required, several kinds may match."""
    if isinstance(schema, list):
        return [_partial(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    noise = {"title"} if isinstance(schema.get("title"), str) else set()
    remaining = {
        key: value for key, value in schema.items() if key not in noise | {"required", "discriminator"}
    }
    partial = {"anyOf" if key == "oneOf" else key: _partial(value) for key, value in remaining.items()}
    if partial.get("additionalProperties") is False:
        partial["patternProperties"] = _EXTENSIONS
    return partial

"""JSON Schema of scenario files, for completion and checks in an editor.

The schema has keys, types, ranges and units. It does not check whether a variant is complete, because a
section may be split between the shared part and each variant: `netfold validate` checks that.
"""

from __future__ import annotations

from typing import Any

from netfold.sim.scenario.merge import DEVICE_SUFFIX, NONE
from netfold.sim.scenario.models import Header, Settings, Variant
from netfold.sim.scenario.node import EXTENSION
from netfold.sim.scenario.sweep import SWEEP, sweep_schema
from netfold.sim.workload.hardware import HARDWARE

_EXTENSIONS: dict[str, Any] = {f"^{EXTENSION}": {}}  # ignored keys


def schema() -> dict[str, Any]:
    """The schema, draft 2020-12."""
    # In this mode pydantic writes defaults as the file does: "100Gbps", not 100000000000.
    header, settings, variant = (
        model.model_json_schema(mode="serialization") for model in (Header, Settings, Variant)
    )
    definitions = {**header["$defs"], **variant.pop("$defs")}
    definitions["Workers"] = {"anyOf": [definitions["Workers"], {"type": "integer", "minimum": 1}]}
    definitions["SwitchProfile"] = {"anyOf": [definitions["SwitchProfile"], {"type": "string"}]}
    _with_short_devices(settings, variant, definitions["JobSection"])
    properties = {**header["properties"], **settings["properties"]}
    variants = {
        "description": "Alternatives to compare: a list, each with a name and the keys it changes; "
        "or a grid, each key with its values by name.",
        "anyOf": [
            {"type": "array", "minItems": 1, "items": _partial(variant) | {"required": ["name"]}},
            {
                "type": "object",
                "minProperties": 1,
                "properties": {
                    key: {"type": "object", "minProperties": 1, "additionalProperties": value}
                    for key, value in _partial(settings["properties"]).items()
                },
                "additionalProperties": False,
            },
        ],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "netfold scenario",
        "type": "object",
        "properties": _partial(properties) | {"variants": variants, SWEEP: _partial(sweep_schema())},
        "required": ["name"],
        "additionalProperties": False,
        "patternProperties": _EXTENSIONS,
        "$defs": _partial(definitions),
    }


def _with_short_devices(*sections: dict[str, Any]) -> None:
    """Let devices be written as names, too."""
    short = {"type": "string", "examples": [NONE, *HARDWARE, f"cpu{DEVICE_SUFFIX}"]}
    for section in sections:
        section["properties"]["device"]["oneOf"].append(short)


def _partial(schema: Any) -> Any:
    """The schema for parts of what it describes: no key is required, and several kinds may match."""
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

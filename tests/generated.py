"""Everything that is written from the sources: the reference, the schema, the table of models, the matrix.

make generated                 # docs/reference.md, scenarios/schema.json, table.json of the models
make generated MATRIX=yes      # docs/matrix.md too, which takes some minutes
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from netfold.homomorphic.codecs import codec_kinds
from netfold.sim.keys import NAME_PATTERN
from netfold.sim.results.metrics import METRICS, Metric
from netfold.sim.scenario.sweep_keys import SweepOptions, sweep_schema
from netfold.sim.scenario.variant_keys import Header, Variant
from netfold.sim.workload.hardware import HARDWARE
from netfold.sim.workload.models.registry import TABLE, classes, key_of
from netfold.torch.wire import make_codec, support_of
from netfold.units import FRACTION_PATTERN, RATE, SIZE, TIME
from tests import ROOT
from tests.command_line import run_command

PATTERNS = {
    RATE.pattern: "rate",
    TIME.pattern: "time",
    SIZE.pattern: "size",
    FRACTION_PATTERN: "share",
    NAME_PATTERN: "name",
}
TYPES = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "array": "list",
    "boolean": "true or false",
}


def reference() -> str:
    """The page of all that is known from the sources."""
    return f"""# Reference

Written by `make generated` from the sources: what every key, metric, codec and device is. What they are for
is in the [guide](../scenarios/README.md), [training](training.md) and the READMEs of the packages.

## Keys of a scenario

Required keys have to be given, in the file or in each variant. If the default is "–", the meaning says what
happens without the key.

{all_keys()}

## Metrics

Of `summary.json` and `netfold run --json`. "Best" is what comparisons rank first, by the name that `--sort`
takes where there is one.

{all_metrics()}

## Codecs

In a run every codec works on the collectives that carry its merges ([matrix](matrix.md)). In real training
([torch](../netfold/torch/README.md)) some need more, or have the simulator's bits over some collectives only.

{all_codecs()}

## Devices

What `device: NAME` and `device: {{kind: roofline, name: NAME}}` take ([training](training.md#devices)).

{all_devices()}
"""


def all_codecs() -> str:
    """A row for every codec, with its default options."""
    rows = [
        "| codec | after | in real training | its messages | the simulator's bits over |",
        "|---|---|---|---|---|",
    ]
    for kind in codec_kinds():
        codec = make_codec(kind, {})
        support, after = support_of(codec), ": ".join(filter(None, codec.origin))
        works = f"{support.works}: {support.why}" if support.why else support.works
        bits = "every collective that carries it" if codec.is_order_free else "`all_gather`"
        bits = "–" if support.works == "no" else bits
        rows.append(f"| `{kind}` | {after} | {works} | {support.travels} | {bits} |")
    return "\n".join(rows)


def all_devices() -> str:
    """A row for every device of the table."""
    rows = [f"| `{name}` | {device.title} | {device.source} |" for name, device in HARDWARE.items()]
    return "\n".join(["| name | device | after |", "|---|---|---|", *rows])


def all_metrics() -> str:
    """The table of metrics: what each is, of what it is a mean or a total, and what is best."""
    rows = [
        f"| `{metric.name}` | {metric.unit.title} | {metric.per} | {_best(metric)} | {metric.what} |"
        for metric in METRICS
    ]
    return "\n".join(["| metric | is | per | best | what |", "|---|---|---|---|---|", *rows])


def _best(metric: Metric) -> str:
    return f"{metric.better or '–'}{f', `{metric.sort}`' if metric.sort else ''}"


def all_keys() -> str:
    """The reference of all keys, from the descriptions in the models."""
    variant = Variant.model_json_schema(mode="serialization")
    header = TypeAdapter(Header).json_schema()
    own = [_resolved(member, header["$defs"]) for member in _members(header["properties"]["profiles"])]
    parts = [
        _section("The file", "", [header]),
        _section("`profiles`", header["properties"]["profiles"]["description"], own),
    ]
    for name, section in variant["properties"].items():
        if name != "name":
            members = [_resolved(member, variant["$defs"]) for member in _members(section)]
            if name == "jobs":  # whose other keys are the sections above
                keys = ("name", "start", "count", "arrivals", "fallback")
                own = {key: one for key, one in members[0]["properties"].items() if key in keys}
                members = [{**members[0], "properties": own}]
            members = [member for member in members if "properties" in member]  # none of a plain value
            default = f" Default: {_written(section['default'])}." if "default" in section else ""
            parts.append(_section(f"`{name}`", section["description"] + default, members))
        if name == "workload":
            training = _resolved(_members(section)[0], variant["$defs"])
            model = training["properties"]["model"]
            models = [_resolved(member, variant["$defs"]) for member in _members(model["anyOf"][-1])]
            parts.append(_section("`workload.model`", model["description"], models))
            fusion = training["properties"]["fusion"]
            rules = [_resolved(member, variant["$defs"]) for member in _members(fusion)]
            parts.append(_section("`workload.fusion`", fusion["description"], rules))
            given, stage = variant["$defs"]["GivenCosts"], variant["$defs"]["StageCost"]
            parts.append(_section("`workload.fusion.costs`", "", [given]))
            parts.append(_section("`encode`, `network` and `decode` of `workload.fusion.costs`", "", [stage]))
            parts.append(_section("`workload.evaluate`", "", [variant["$defs"]["Evaluate"]]))
        if name == "jobs":
            kinds = [variant["$defs"][f"{kind}Arrivals"] for kind in ("Fixed", "Even", "Poisson")]
            parts.append(_section("`jobs.arrivals`", "", kinds))
        if name == "topology":
            for key, held in (("links", "LinkOverride"), ("switch_profiles", "ProfileOverride")):
                parts.append(_section(f"`topology.{key}`", "", [variant["$defs"][held]]))
        if name == "collective":
            custom_frame = variant["$defs"]["CustomFrame"]
            parts.append(_section("`collective.frame`, if it is your own", "", [custom_frame]))
    sweep = {
        **SweepOptions.model_json_schema(mode="serialization"),
        "description": sweep_schema()["description"],
    }
    return "\n\n".join([*parts, _section("`sweep`", "", [sweep])])


def _members(section: Any) -> list[Any]:
    """The kinds a section may have, or what its list holds, or the section itself."""
    held = section.get("items", section)
    return held.get("oneOf") or held.get("anyOf") or [held]


def _resolved(member: Any, definitions: Any) -> Any:
    return definitions[member["$ref"].rpartition("/")[2]] if "$ref" in member else member


def _section(title: str, description: str, members: list[Any]) -> str:
    shown = [f"### {title}", description, *(_member(member) for member in members)]
    return "\n\n".join(part for part in shown if part)


def _member(member: Any) -> str:
    """One kind of a section: what it is, and a table of its keys."""
    options = dict(member["properties"])
    kind = options.get("kind", {}).get("const")
    if kind:
        del options["kind"]
    sentence, meanings = _docstring(member.get("description", ""))
    rows = [
        f"| `{key}` | {_value(option)} | {_default(key, option, member)} "
        f"| {_in_a_cell(option.get('description') or meanings.get(key, ''))} |"
        for key, option in options.items()
    ]
    table = "\n".join(["| key | value | default | meaning |", "|---|---|---|---|", *rows])
    heading = f"`kind: {kind}`: {sentence}" if kind else sentence
    return "\n\n".join(part for part in (heading, table if rows else "") if part)


def _in_a_cell(text: str) -> str:
    """Text on one line, whose bars do not end the cell of a table."""
    return " ".join(text.split()).replace("|", r"\|")


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """First paragraph, and what is said of options in lines that begin with "option:"."""
    options = re.findall(r"^(\w+): (.*?)(?=^\w+: |\Z)", text, re.MULTILINE | re.DOTALL)
    return text.partition("\n\n")[0], {key: " ".join(meaning.split()) for key, meaning in options}


def _value(option: Any) -> str:
    """What may be written."""
    if "anyOf" in option:
        kinds = [_value(one) for one in option["anyOf"] if one.get("type") != "null"]
        return "share" if "share" in kinds else " or ".join(kinds)
    if "$ref" in option or "oneOf" in option:
        return "mapping"
    if "enum" in option:
        return ", ".join(f"`{one}`" for one in option["enum"])
    if "const" in option:
        return f"`{option['const']}`"
    if option.get("pattern") in PATTERNS:
        return PATTERNS[option["pattern"]]
    least = f", at least {option['minimum']}" if option.get("minimum") is not None else ""
    return TYPES[option["type"]] + least


def _default(key: str, option: Any, member: Any) -> str:
    if key in member.get("required", ()):
        return "required"
    return "–" if option.get("default") in (None, "") else _written(option["default"])


def _written(value: Any) -> str:
    """A value as a scenario file writes it."""
    if isinstance(value, dict):
        return "`{" + ", ".join(f"{key}: {one}" for key, one in value.items() if one is not None) + "}`"
    return "`" + (value if isinstance(value, str) else json.dumps(value)) + "`"


def model_facts() -> dict[str, Any]:
    """The table as it must be: each model with its default options, and with those of its densities."""
    models = [
        section(**options)
        for section in classes().values()
        for options in [{}, *(dict(density.options) for density in section.densities)]
    ]
    return {
        key_of(model.written): model.known().model_dump(mode="json", exclude_defaults=True)
        for model in models
    }


def model_table() -> str:
    """What is known of models without PyTorch; a line for each fact and tensor shows what changes."""

    def line(indent: int, value: object, key: str | None = None) -> str:
        text = json.dumps(value, ensure_ascii=False)
        return " " * indent + (text if key is None else f"{json.dumps(key)}: {text}")

    models = []
    for key, known in model_facts().items():
        lines = [line(2, value, name) for name, value in known.items() if name != "tensors"]
        tensors = ",\n".join(line(3, tensor) for tensor in known["tensors"])
        body = ",\n".join([*lines, f'  "tensors": [\n{tensors}\n  ]'])
        models.append(f" {json.dumps(key)}: {{\n{body}\n }}")
    return "{\n" + ",\n".join(models) + "\n}\n"


MADE: dict[Path, Callable[[], str]] = {
    ROOT / "docs" / "reference.md": reference,
    ROOT / "scenarios" / "schema.json": lambda: run_command("schema").stdout,
    TABLE: model_table,
}
MATRIX = {ROOT / "docs" / "matrix.md": lambda: run_command("codecs", "matrix", "--markdown").stdout}

if __name__ == "__main__":
    for path, make in {**MADE, **(MATRIX if sys.argv[1:] == ["--matrix"] else {})}.items():
        path.write_text(make(), "utf-8")

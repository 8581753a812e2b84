"""Everything that is written from the sources: reference, commands, API, schema, models, matrix, a picture.

`make generated` calls it. It writes docs/matrix.md too with MATRIX=yes, and the trials of learning rates with
RATES=yes; each takes minutes.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import TypeAdapter

import netfold
from docs.path_of_a_gradient import picture
from netfold.commands.listings import profile_table
from netfold.homomorphic.codec import codec_kinds
from netfold.sim.collectives.collective import collectives
from netfold.sim.keys import NAME_PATTERN
from netfold.sim.plan.host_profiles import host_profiles
from netfold.sim.results.metrics import METRICS, Metric
from netfold.sim.scenario.sweep_keys import SweepOptions, sweep_schema
from netfold.sim.scenario.variant_keys import Header, Variant
from netfold.sim.studies.topology_study import listing
from netfold.sim.workload.device_rooflines import HARDWARE
from netfold.sim.workload.models.registry import TABLE, classes, key_of
from netfold.switch.profiles import PROFILES
from netfold.switch.program import programs
from netfold.torch.wire import make_codec, support_of
from netfold.units import FRACTION_PATTERN, RATE, SIZE, TIME
from tests import ROOT
from tests.command_line import run_command
from tests.generated_interfaces import api, commands

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
NESTED = {  # keys whose values have keys of their own, below a section
    "topology": ("links", "switch_profiles"),
    "workload": ("model", "fusion", "fusion.costs", "fusion.costs.encode", "evaluate"),
    "collective": ("frame",),
    "jobs": ("arrivals",),
}


def reference() -> str:
    """The page of all that is known from the sources."""
    return f"""# Reference

Written by `make generated` from the sources: what every key, metric, codec and device is. What they are for
is in the [guide](../scenarios/README.md), [training](training.md) and the pages of `docs/explanation`.

## Keys of a scenario

Required keys have to be given, in the file or in each variant. If the default is "–", the meaning says what
happens without the key.

{all_keys()}

## Metrics

Of `summary.json` and `netfold run --json`. "Best" is what comparisons rank first, by the name that `--sort`
takes where there is one.

{all_metrics()}

## Codecs

In a run every codec works on the collectives that carry its merges ([matrix](matrix.md)). In
[real training](explanation/real-training.md) some need more, or have the simulator's bits over fewer.

{all_codecs()}

## Devices

What `device: NAME` and `device: {{kind: roofline, name: NAME}}` take ([training](training.md#devices)).

{all_devices()}

## Collectives

{all_collectives()}

## Switch programs

{all_programs()}

## Switch profiles

What `topology.switch` takes, with the source of every number; "assumed" marks what is unpublished.

{all_switch_profiles()}

## Host profiles

What `hosts` takes, with the source of every number. Times are of one core, or of the card.

{all_host_profiles()}

## Topologies

The kinds that follow a paper or have closed forms.

{all_topologies()}
"""


def table(*rows: Sequence[str]) -> str:
    """A table, whose first row is its heading."""
    lines = ["| " + " | ".join(map(_in_a_cell, row)) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def all_collectives() -> str:
    """A row for every collective, with its merges and the first words of its module."""
    rows = []
    for kind, spec in collectives().items():
        has_programs = "program" in spec.section.model_fields
        merges = ", ".join(sorted(merge.name.lower() for merge in spec.merges))
        rows.append(
            (f"`{kind}`", merges, "its switch programs, below" if has_programs else _origin(spec.section))
        )
    return table(("collective", "merges", "after"), *rows)


def all_programs() -> str:
    """A row for every switch program, with the first words of its module."""
    rows = [
        (f"`{name}`", spec.title, spec.summary, _origin(spec.layout)) for name, spec in programs().items()
    ]
    return table(("program", "name", "what", "after"), *rows)


def _origin(defined: Any) -> str:
    """What the module of a class or function says, up to a table."""
    text = inspect.getdoc(inspect.getmodule(defined)) or ""
    return re.split(r"\n\n {4}", text)[0]


def all_switch_profiles() -> str:
    """A table for every switch profile."""
    parts = []
    for profile in PROFILES.values():
        rows = zip(*(column.cells for column in profile_table(profile).columns), strict=True)
        written = [
            (f"`{re.sub('_(b?ps|bytes)$', '', str(name))}`", str(value).replace("\n", ", "), str(source))
            for name, value, source in rows
        ]
        parts += [f"### `{profile.name}`: {profile.summary}", table(("key", "value", "source"), *written)]
    return "\n\n".join(parts)


def all_host_profiles() -> str:
    """A row for every number of every host profile."""
    rows = []
    for kind, profile in host_profiles().items():
        for name, source in profile.sources.items():
            value = getattr(profile, name)
            key, _, unit = name.rpartition("_ps")
            rows.append((f"`{kind}`", f"`{key or unit}`", TIME.format(value) if key else str(value), source))
    return table(("profile", "key", "value", "source"), *rows)


def all_topologies() -> str:
    """Papers and closed forms of every kind that has them."""
    return "\n\n".join(
        f"### `{kind.kind}`: {kind.meaning}\n\n{kind.closed_forms}" for kind in listing() if kind.closed_forms
    )


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
    header = TypeAdapter(Header).json_schema()
    variant = Variant.model_json_schema(mode="serialization")
    definitions = {**header["$defs"], **variant["$defs"]}
    profiles = header["properties"]["profiles"]
    parts = [_section("The file", {**header, "description": ""}, definitions)]
    parts.append(_section("`profiles`", profiles, definitions))
    prices = definitions["Prices"]
    parts.append(_section("`prices`", prices, definitions))
    for key, listed in prices["properties"].items():
        parts.append(_section(f"`prices.{key}`", listed, definitions))
    for name, section in variant["properties"].items():
        for path in ("", *NESTED.get(name, ())) if name != "name" else ():
            schema = section
            for key in filter(None, path.split(".")):
                kinds = _kinds(schema, definitions)
                schema = next(kind["properties"][key] for kind in kinds if key in kind["properties"])
            shared = [key for key in variant["properties"] if key != "name"] if name == "jobs" else []
            parts.append(_section(f"`{f'{name}.{path}'.strip('.')}`", schema, definitions, shared))
    sweep = SweepOptions.model_json_schema(mode="serialization")
    parts.append(_section("`sweep`", {**sweep, "description": sweep_schema()["description"]}, {}))
    return "\n\n".join(parts)


def _kinds(schema: Any, definitions: Any) -> list[Any]:
    """The mappings that a value may be, or a list of it may hold."""
    if "$ref" in schema:
        return _kinds(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "properties" in schema:
        return [schema]
    members = [*schema.get("oneOf", ()), *schema.get("anyOf", ()), *filter(None, [schema.get("items")])]
    return [kind for member in members for kind in _kinds(member, definitions)]


def _section(title: str, schema: Any, definitions: Any, shared: Sequence[str] = ()) -> str:
    """What a key is, and its kinds; `shared` are keys that are explained elsewhere."""
    default = f" Default: {_written(schema['default'])}." if schema.get("default") else ""
    kinds = _kinds(schema, definitions)
    own = [
        {**kind, "properties": {key: one for key, one in kind["properties"].items() if key not in shared}}
        for kind in kinds
    ]
    text = "" if kinds == [schema] else schema.get("description", "") + default
    return "\n\n".join(filter(None, [f"### {title}", text, *map(_member, own)]))


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
        kinds = list(dict.fromkeys(_value(one) for one in option["anyOf"] if one.get("type") != "null"))
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
    ROOT / "docs" / "commands.md": commands,
    ROOT / "docs" / "api.md": api,
    ROOT / "scenarios" / "schema.json": lambda: run_command("schema").stdout,
    TABLE: model_table,
    ROOT / "docs" / "pictures" / "path-of-a-gradient.svg": picture,
}
RATES = ROOT / "scenarios" / "papers" / "compression-rates.csv"
SWEEPS = {"mlp": RATES.with_suffix(".yaml"), "ncf": RATES.with_name("compression-rates-films.yaml")}


def rates() -> str:
    """Trials of learning rates by model and codec: the steps to the target, and the score at the end."""
    trials = [
        netfold.sweep(file).points.select(
            pl.lit(model).alias("model"),
            pl.col("variant").alias("codec"),
            pl.col("workload.learning_rate").alias("learning_rate"),
            pl.col("steps_to_target").cast(pl.Int64),
            pl.col("test_score").round(4),
        )
        for model, file in SWEEPS.items()
    ]
    return pl.concat(trials).sort("model", "codec", "learning_rate").write_csv()


DEAR: dict[str, dict[Path, Callable[[], str]]] = {
    "--matrix": {ROOT / "docs" / "matrix.md": lambda: run_command("codecs", "matrix", "--markdown").stdout},
    "--rates": {RATES: rates},
}

if __name__ == "__main__":
    for path, make in {
        **MADE,
        **{path: make for word in sys.argv[1:] for path, make in DEAR[word].items()},
    }.items():
        path.write_text(make(), "utf-8")

"""The documents keep their word: files in them are valid, commands print what is shown, links lead somewhere.

`python -m tests.test_readme` writes the reference of all keys in scenarios/README.md, and the table of all
metrics in netfold/sim/README.md, again.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from pydantic import TypeAdapter

from netfold.commands.main import app
from netfold.sim.keys import NAME_PATTERN
from netfold.sim.results.format import TABLES
from netfold.sim.results.metrics import METRICS, Metric
from netfold.sim.scenario.load import load
from netfold.sim.scenario.resolve import resolve
from netfold.sim.scenario.sweep_keys import SweepOptions, sweep_schema
from netfold.sim.scenario.variant_keys import Header, Variant
from netfold.units import FRACTION_PATTERN, RATE, SIZE, TIME
from tests.command_line import run_command
from tests.docs import DOCUMENTS, ROOT, Step, blocks, chapters, missing, prepare, renewed, steps

README, GUIDE = ROOT / "README.md", ROOT / "scenarios" / "README.md"
RESULTS = ROOT / "netfold" / "sim" / "README.md"
BEGIN, END = "<!-- all keys: written by `python -m tests.test_readme` -->", "<!-- end of keys -->"
BEGIN_METRICS = "<!-- all metrics: written by `python -m tests.test_readme` -->"
END_METRICS = "<!-- end of metrics -->"
SLOW = (
    "01-quickstart.yaml",
    "11-compare-topologies.yaml",
    "12-oversubscription.yaml",
    "13-how-many-workers.yaml",
    "14-thousand-hosts.yaml",
    "15-time-to-accuracy.yaml",
    "16-overlap-and-fusion.yaml",
    "17-bring-your-own-model.yaml",
    "18-jobs-that-come-and-go.yaml",
    "07-lossless.yaml",
    "08-five-systems.yaml",
    "10-held-back.yaml",
    "bird.yaml",
    "layer-fusion.yaml",
    "marsit.yaml",
    "sasg.yaml",
    "sketch-fusion.yaml",
    "loss-0-1.collective",  # the whole of 02-loss again
    "collective.timeout=50us",
    "switchml-rate.yaml",
    "topology.switch=ideal",
    "05-does-it-fit.yaml$",
    "09-overlap.yaml$",
    "codecs matrix",
)  # a second or many: `make docs` runs them
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
EVERY_DOCUMENT = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


@functools.cache
def netfold_command() -> click.Command:
    return typer.main.get_command(app)


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """What a command line calls, and the arguments left."""
    command: Any = netfold_command()
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def mentioned(document: Path) -> Iterator[str]:
    """Commands of netfold that a document types or names in its text."""
    yield from (step.command for step in steps(document) if step.command.startswith("netfold "))
    yield from re.findall(r"`(netfold [^`]+)`", document.read_text("utf-8"))


@EVERY_DOCUMENT
def test_commands_exist(document: Path) -> None:
    for line in mentioned(document):
        words = shlex.split(line.replace("[", "").replace("]", ""))[1:]
        command, arguments = command_of(words)
        own = (
            arguments[: arguments.index("--")] if "--" in arguments else arguments
        )  # before another program's

        assert not isinstance(command, click.Group) or arguments[:1] in ([], ["--version"], ["--help"]), line
        known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        assert {word.partition("=")[0] for word in own if word.startswith("--")} <= known, line


@EVERY_DOCUMENT
def test_make_targets_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))

    assert set(re.findall(r"(?:^ {4}|`)make ([a-z-]+)", document.read_text("utf-8"), re.MULTILINE)) <= targets


@EVERY_DOCUMENT
def test_links_lead_somewhere(document: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", document.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        file = (document.parent / name) if name else document

        assert name.startswith("https://") or file.exists(), target
        assert not anchor or anchor in anchors(file), target


def anchors(document: Path) -> set[str]:
    """What GitHub makes of a document's headings."""
    headings = re.findall(r"^#+ (.+)$", document.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@EVERY_DOCUMENT
def test_scenarios_are_valid(document: Path, tmp_path: Path) -> None:
    for text in blocks(document, "yaml"):
        file = tmp_path / "shown.yaml"
        file.write_text(text, "utf-8")

        assert resolve(load(file)).variants


def quick(steps: list[Step]) -> list[Step]:
    return [step for step in steps if not any(re.search(name, step.command) for name in SLOW)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("document", "heading"),
    [
        pytest.param(document, heading, id=f"{document.relative_to(ROOT)}-{heading}")
        for document in DOCUMENTS
        for heading, steps in chapters(document).items()
        if quick(steps)
    ],
)
def test_commands_print_what_is_shown(
    document: Path, heading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Type what a chapter types, where the document's own file is `mine.yaml`; reports are not drawn."""
    monkeypatch.setattr("netfold.commands.terminal.write_report", lambda folder: folder / "report.html")
    prepare(document, tmp_path)
    monkeypatch.chdir(tmp_path)
    for step in quick(chapters(document)[heading]):
        result = run_command(*shlex.split(step.command)[1:])

        assert missing(step.output, result.output) == []


@pytest.mark.slow
def test_the_python_example_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = blocks(README, "python")
    prepare(README, tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(example, {})

    assert capsys.readouterr().out.splitlines() == re.findall(r"print\(.*#\s*(.*)", example)


def test_lines_are_renewed_by_name_and_by_kind() -> None:
    shown = "…\n│ a │ 1 s │\n│ b │ 2 s │\ntook 12 seconds\ngone for good\n"
    printed = "note\n│ a │ 3 s │\n│ c │ 4 s │\n│ b │ 5 s │\ntook 7 seconds\n"

    assert missing(shown, printed) != []
    assert renewed(shown, printed) == "…\n│ a │ 3 s │\n│ b │ 5 s │\ntook 7 seconds\ngone for good\n"


def test_quickstart_is_told_the_same_twice() -> None:
    told = [
        next(step.output for step in steps(document) if step.command.endswith("quickstart.yaml"))
        for document in (README, GUIDE)
    ]

    assert told[0] == told[1]


def test_every_column_is_explained() -> None:
    text = (ROOT / "netfold" / "sim" / "README.md").read_text("utf-8")
    columns = {field.name for record in TABLES.values() for field in fields(record)}

    assert {name for name in columns if f"`{name}`" not in text} == set()


def test_all_keys_are_in_the_guide() -> None:
    text = GUIDE.read_text("utf-8")

    assert text[text.index(BEGIN) : text.index(END)] == f"{BEGIN}\n\n{all_keys()}\n\n"


def test_all_metrics_are_explained() -> None:
    text = RESULTS.read_text("utf-8")
    shown = text[text.index(BEGIN_METRICS) : text.index(END_METRICS)]

    assert shown == f"{BEGIN_METRICS}\n\n{all_metrics()}\n\n"


def test_bars_do_not_end_a_cell_of_the_reference() -> None:
    keys = {"of": {"type": "number", "description": "The mean\n    |gradient|."}}

    assert _member({"properties": keys}).splitlines()[-1] == r"| `of` | number | – | The mean \|gradient\|. |"


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


def _write(document: Path, begin: str, end: str, content: str) -> None:
    before, _, rest = document.read_text("utf-8").partition(begin)
    document.write_text(f"{before}{begin}\n\n{content}\n\n{end}{rest.partition(end)[2]}", "utf-8")


if __name__ == "__main__":
    _write(GUIDE, BEGIN, END, all_keys())
    _write(RESULTS, BEGIN_METRICS, END_METRICS, all_metrics())

"""The documents keep their word: files are valid, commands print what is shown, links lead somewhere."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from netfold.commands.main import app
from netfold.sim.results.format import TABLES
from netfold.sim.scenario.load import load
from netfold.sim.scenario.resolve import resolve
from tests import generated
from tests.command_line import run_command
from tests.docs import DOCUMENTS, ROOT, Step, blocks, chapters, missing, prepare, renewed, steps

README, GUIDE = ROOT / "README.md", ROOT / "scenarios" / "README.md"
REFERENCE, RESULTS = ROOT / "docs" / "reference.md", ROOT / "netfold" / "sim" / "README.md"
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
    "papers/compression",
    "topology.switch=ideal",
    "05-does-it-fit.yaml$",
    "09-overlap.yaml$",
    "codecs matrix",
)  # a second or many: `make docs` runs them
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
    """The answer; the guide shows more columns."""
    told = [
        next(step.output for step in steps(document) if "quickstart.yaml" in step.command)
        for document in (README, GUIDE)
    ]

    assert told[0].splitlines()[:2] == told[1].splitlines()[:2]


def test_every_column_is_explained() -> None:
    text = RESULTS.read_text("utf-8") + REFERENCE.read_text("utf-8")
    columns = {field.name for record in TABLES.values() for field in fields(record)}

    assert {name for name in columns if f"`{name}`" not in text} == set()


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in generated.MADE if path.name != "schema.json"])
def test_what_is_made_from_the_sources_is_what_they_say(path: Path) -> None:
    assert path.read_text("utf-8") == generated.MADE[path](), "make generated"


def test_bars_do_not_end_a_cell_of_the_reference() -> None:
    keys = {"of": {"type": "number", "description": "The mean\n    |gradient|."}}

    row = generated._member({"properties": keys}).splitlines()[-1]
    assert row == r"| `of` | number | – | The mean \|gradient\|. |"

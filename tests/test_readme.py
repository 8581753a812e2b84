"""The documents keep their word: files are valid, commands print what is shown, links lead somewhere."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from itertools import takewhile
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from netfold.commands import terminal
from netfold.commands.main import app
from netfold.sim.results.file_formats import TABLES
from netfold.sim.scenario.load import load
from netfold.sim.scenario.resolve import resolve
from tests import generated
from tests.command_line import run_command
from tests.docs import (
    DOCUMENTS,
    PICTURES,
    ROOT,
    Step,
    blocks,
    chapters,
    missing,
    pictures,
    prepare,
    printed,
    redrawn,
    renewed,
    steps,
)
from tests.generated_interfaces import markdown
from tests.sim.capture.folders import write_recording

README, PYTHON = ROOT / "README.md", ROOT / "docs" / "python.md"
WORDS_MAX = {
    README: 900,
    ROOT / "docs" / "tutorial.md": 650,
    **dict.fromkeys((ROOT / "docs" / "how-to").iterdir(), 600),
}
REFERENCE, RESULTS = ROOT / "docs" / "reference.md", ROOT / "docs" / "explanation" / "run-folder.md"
SLOW = (
    "01-quickstart.yaml",
    "11-compare-topologies.yaml",
    "--figure sizes",  # of that run
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
    "--price 550k",
    "05-does-it-fit.yaml$",
    "09-overlap.yaml$",
    "codecs matrix",
    "first.yaml",
    "large.yaml",
    "torchrun",
    "explain",
    "python .*[.]py",  # a process that imports PyTorch
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
    prepare(document, tmp_path)
    write_recording(tmp_path / "recording")  # as `netfold capture` does
    for text in blocks(document, "yaml"):
        file = tmp_path / "shown.yaml"
        file.write_text(text, "utf-8")

        assert resolve(load(file)).variants


def quick(document: Path, heading: str) -> list[Step]:
    """Of a chapter all quick commands; of a page whose commands need each other those before a slow one."""
    if document not in WORDS_MAX:
        return [step for step in chapters(document)[heading] if not is_slow(step)]
    return list(takewhile(lambda step: not is_slow(step), steps(document))) if heading == "" else []


def is_slow(step: Step) -> bool:
    return any(re.search(name, step.command) for name in SLOW)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("document", "heading"),
    [
        pytest.param(document, heading, id=f"{document.relative_to(ROOT)}-{heading}")
        for document in DOCUMENTS
        for heading in chapters(document)
        if quick(document, heading)
    ],
)
def test_commands_print_what_is_shown(
    document: Path, heading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Type what a chapter types; of reports only the document's pictures are drawn."""
    write = terminal.write_report

    def write_figure(folder: Path, figure: str = "", *further: Any) -> Path:
        return write(folder, figure, *further) if figure else folder / "report.html"

    monkeypatch.setattr(terminal, "write_report", write_figure)
    prepare(document, tmp_path)
    monkeypatch.chdir(tmp_path)
    for step in quick(document, heading):
        name, *words = shlex.split(step.command)
        output = run_command(*words).output if name == "netfold" else printed(step.command, tmp_path)

        assert missing(step.output, output) == []
    assert redrawn(tmp_path) == []


@pytest.mark.slow
def test_the_python_example_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = blocks(PYTHON, "python")
    prepare(PYTHON, tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(example, {})

    assert capsys.readouterr().out.splitlines() == re.findall(r"print\(.*#\s*(.*)", example)


def test_pictures_are_drawn_by_commands_described_and_small() -> None:
    drawn = {path.name for path in generated.MADE}
    for document in DOCUMENTS:
        drawn |= {word for step in steps(document) for word in shlex.split(step.command)}
        for alternative, name in re.findall(r"!\[([^]]*)\]\([^)]*?([\w.-]+)\)", document.read_text("utf-8")):
            assert len(alternative.split()) >= 5, name

    assert {path.name for path in PICTURES.iterdir()} == set(pictures()) <= drawn
    assert [path.name for path in PICTURES.iterdir() if path.stat().st_size > 150_000] == []


def test_a_picture_that_a_command_draws_otherwise_is_told(tmp_path: Path) -> None:
    name = min(pictures())
    (tmp_path / name).write_bytes((PICTURES / name).read_bytes())

    assert redrawn(tmp_path) == []
    (tmp_path / name).write_bytes(b"<svg/>")
    assert redrawn(tmp_path) == [tmp_path / name]


def test_lines_are_renewed_by_name_and_by_kind() -> None:
    shown = "…\n│ a │ 1 s │\n│ b │ 2 s │\ntook 12 seconds\ngone for good\n"
    printed = "note\n│ a │ 3 s │\n│ c │ 4 s │\n│ b │ 5 s │\ntook 7 seconds\n"

    assert missing(shown, printed) != []
    assert renewed(shown, printed) == "…\n│ a │ 3 s │\n│ b │ 5 s │\ntook 7 seconds\ngone for good\n"


def test_pages_are_short() -> None:
    limits = {**dict.fromkeys(ROOT.glob("docs/*/**/*.md"), 400), ROOT / "scenarios" / "README.md": 100}

    assert [page for page, most in limits.items() if len(page.read_text("utf-8").splitlines()) > most] == []


def test_every_scenario_is_in_the_table() -> None:
    folder = ROOT / "scenarios"
    names = {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml")}

    text = (folder / "README.md").read_text("utf-8")
    assert {name for name in names if f"`{name}`" not in text and f"[{name}]" not in text} == set()


def test_who_is_new_reads_little() -> None:
    words = {page: re.findall(r"\S*\w\S*", page.read_text("utf-8")) for page in WORDS_MAX}

    assert [
        (page.name, len(words[page])) for page, most in WORDS_MAX.items() if len(words[page]) > most
    ] == []


def test_every_column_is_explained() -> None:
    text = RESULTS.read_text("utf-8") + REFERENCE.read_text("utf-8")
    columns = {field.name for record in TABLES.values() for field in fields(record)}

    assert {name for name in columns if f"`{name}`" not in text} == set()


def test_readmes_of_packages_are_maps() -> None:
    """Formats, rules and reasons are pages of docs/explanation."""
    words = {path: len(path.read_text("utf-8").split()) for path in ROOT.glob("netfold/**/README.md")}

    assert {path: count for path, count in words.items() if count > 800} == {}


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in generated.MADE if path.name != "schema.json"])
def test_what_is_made_from_the_sources_is_what_they_say(path: Path) -> None:
    assert path.read_text("utf-8") == generated.MADE[path](), "make generated"


def test_sections_of_docstrings_are_lists() -> None:
    def documented() -> None:
        """What it does.

        Raises
        ------
        ValueError
            It is too
            long.
        KeyError
            It is not there.

        Returns
        -------
        path
            Where it is.
        """

    assert markdown(documented).split("\n\n") == [
        "What it does.",
        "**Raises**",
        "* `ValueError`: It is too long.\n* `KeyError`: It is not there.",
        "**Returns**",
        "* `path`: Where it is.",
    ]


def test_bars_do_not_end_a_cell_of_the_reference() -> None:
    keys = {"of": {"type": "number", "description": "The mean\n    |gradient|."}}

    row = generated._member({"properties": keys}).splitlines()[-1]
    assert row == r"| `of` | number | – | The mean \|gradient\|. |"

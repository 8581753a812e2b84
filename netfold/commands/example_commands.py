"""The commands `netfold examples` and `netfold new …`: files to begin with, never written over others."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from netfold.commands.terminal import print_json, print_line, print_table
from netfold.errors import DataError, NetfoldError, UnwrittenError, names_hint

_PACKAGE = Path(__file__).parents[1]
_KINDS = {  # where examples lie below their folder: what they are, and what names them in a scenario
    "*.yaml": ("scenario", ""),
    "*/*.yaml": ("scenario", ""),
    "models/*.py": ("model", "workload: {{kind: training, model: {}:make}}"),
    "*/profiles/*.json": ("profile", "workload: {{kind: synthetic, profile: {}}}"),
    "graphs/*.json": ("graph", "topology: {{kind: file, path: {}}}"),
}


@dataclass(frozen=True)
class Example:
    """A file that comes with netfold."""

    name: str
    """What users type: the path below the folder of examples, of a scenario without its suffix."""
    path: Path
    kind: str
    use: str
    """What names the file in a scenario, with {} for its path; empty for a scenario."""

    @property
    def sentence(self) -> str:
        """The first sentence of its description."""
        document = _document(self.path)
        if "description" not in document:
            return f"A network of {len(document['nodes'])} nodes and {len(document['edges'])} links."
        return re.split(r"(?<=[.?])\s", document["description"], maxsplit=1)[0]

    def as_dict(self) -> dict[str, str]:
        return {"name": self.name, "kind": self.kind, "description": self.sentence}

    @property
    def files(self) -> list[Path]:
        """The file, and those that it names; a scenario needs no other, though its comments may name some."""
        text = self.path.read_text("utf-8")
        others = [example.path for example in shipped().values() if example.use]
        return [self.path, *(path for path in others if os.path.relpath(path, self.path.parent) in text)]


def examples_folder() -> Path:
    """Where the examples are: in an installed package, or in a checkout."""
    packaged = _PACKAGE / "examples"
    return packaged if packaged.is_dir() else _PACKAGE.parent / "scenarios"


def shipped() -> dict[str, Example]:
    """The examples by name, scenarios first."""
    files = [
        Example(path.relative_to(examples_folder()).as_posix().removesuffix(".yaml"), path, kind, use)
        for pattern, (kind, use) in _KINDS.items()
        for path in sorted(examples_folder().glob(pattern))
    ]
    return {example.name: example for example in files}


def _document(path: Path) -> Any:
    """What a file says of itself, in `description`."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        import ast

        return {"description": ast.get_docstring(ast.parse(text))}
    if path.suffix == ".json":
        return json.loads(text)
    from ruamel.yaml import YAML  # late, as all that takes long to import

    return YAML(typ="safe", pure=True).load(text)


def _complete(incomplete: str) -> list[str]:
    return [name for name in shipped() if name.startswith(incomplete)]


def examples(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The example to copy.", autocompletion=_complete)
    ] = "",
    target: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Where to; by default the working folder.")
    ] = None,
    is_all: Annotated[bool, typer.Option("--all", help="Copy all: netfold examples --all [DIR].")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the examples that come with netfold, or copy one with the files that it needs.

    \b
    netfold examples
    netfold examples 01-quickstart
    netfold run 01-quickstart.yaml

    Files that are there already are never overwritten.
    """
    if is_all:
        if target is not None:
            raise NetfoldError(
                f"--all copies all examples, found the name {name!r}", f"netfold examples --all {target}"
            )
        _copy(list(shipped().values()), Path(name))
    elif name:
        _copy([_find(name)], target or Path())
    elif as_json:
        print_json({"examples": [example.as_dict() for example in shipped().values()]})
    else:
        _print_list()


def _find(name: str) -> Example:
    known = shipped()
    key = name.removesuffix(".yaml")
    if key not in known:
        raise NetfoldError(f"there is no example {name!r}", names_hint(key, known, "examples"))
    return known[key]


_SENTENCE_WIDTH = 80  # characters, where no terminal limits the table


def _print_list() -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(
        "example", "kind", "what it is", title="netfold examples NAME copies one", title_justify="left"
    )
    for example in shipped().values():
        table.add_row(*map(Text, (example.name, example.kind, example.sentence)))
    table.columns[0].no_wrap = True
    table.columns[2].max_width = _SENTENCE_WIDTH
    print_table(table)


def _copy(chosen: Sequence[Example], target: Path) -> None:
    """Copy examples with the files that they need, and say how the first is used."""
    paths = [path for example in chosen for path in example.files]
    contents = {target / path.relative_to(examples_folder()): path.read_bytes() for path in paths}
    if any(example.kind == "scenario" for example in chosen):
        contents[target / "schema.json"] = _schema_of_files()
    write_new(contents)
    first = chosen[0]
    path = target / first.path.relative_to(examples_folder())
    if first.use:
        print_line(f"To use it in a scenario in this folder: {first.use.format(path)}")
    else:
        print_line(_to_run(path, "sweep" if "\nsweep:" in first.path.read_text("utf-8") else "run"))


@cache
def _schema_of_files() -> bytes:
    """What the first line of a scenario names: the schema of what is installed."""
    from netfold.sim.scenario.load import schema

    return f"{json.dumps(schema(), indent=2)}\n".encode()


def _to_run(path: Path, command: str = "run") -> str:
    return f"To run it: netfold {command} {shlex.quote(str(path))}"


def write_new(contents: Mapping[Path, bytes]) -> None:
    """Write files, and say so. Files that are there already stay, if they have the same content.

    Raises
    ------
    DataError
        Something else is there already; then nothing is written.
    UnwrittenError
        A file cannot be written.
    """
    existing_paths = [path for path in contents if os.path.lexists(path)]
    if others := [path for path in existing_paths if not _holds(path, contents[path])]:
        raise DataError(
            f"{', '.join(map(str, others))}: there already, and different; netfold overwrites no file",
            "rename what is there, or give another place",
        )
    for path, content in contents.items():
        if path not in existing_paths:
            _write(path, content)
        print_line(f"{'There already' if path in existing_paths else 'Written'}: {path}")


def _holds(path: Path, content: bytes) -> bool:
    try:
        return path.is_file() and path.read_bytes() == content
    except OSError:  # it may not be read
        return False


def _write(path: Path, content: bytes) -> None:
    """Write a file that is not there yet, whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("xb")
        try:
            with file:
                file.write(content)
        except OSError:
            path.unlink()
            raise
    except OSError as error:
        raise UnwrittenError(
            f"cannot write {error.filename or path}: {error.strerror}", "give another place"
        ) from error


# The commands `netfold new …`.


new = typer.Typer(help="Write a scenario, or a model of your own, to begin with.", no_args_is_help=True)
_TEMPLATES = Path(__file__).parent / "templates"


@new.command("scenario")
def new_scenario(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write, ending in .yaml.")] = Path(
        "scenario.yaml"
    ),
) -> None:
    """Write a scenario with comments, which runs as it is."""
    _require_name(file, "scenario", ".yaml")
    write_new({file: _scenario("my_scenario.yaml", file).encode()})
    print_line(_to_run(file))


@new.command("model")
def new_model(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write, ending in .py.")] = Path(
        "model.py"
    ),
) -> None:
    """Write a model with comments, and beside it a scenario that trains it."""
    _require_name(file, "model", ".py")
    scenario = file.with_suffix(".yaml")
    text = _scenario("my_model.yaml", scenario).replace("my_model.py", file.name)
    write_new({file: (_TEMPLATES / "my_model.py").read_bytes(), scenario: text.encode()})
    print_line(_to_run(scenario))


def _require_name(file: Path, what: str, suffix: str) -> None:
    """Require a name that scenarios can hold as it is, with the suffix."""
    if not re.fullmatch(rf"[\w.-]*\w\{suffix}", file.name):
        raise NetfoldError(
            f"{file}: a {what} has a name of letters, digits, '.', '-' and '_' that ends in {suffix}",
            f"netfold new {what} mine{suffix}",
        )


def _scenario(template: str, file: Path) -> str:
    """The text of a scenario, with the name of its file where that can name a scenario."""
    from netfold.sim.keys import is_name

    text = (_TEMPLATES / template).read_text("utf-8")
    can_be_name = is_name(file.stem) and file.stem != "latest"
    return text.replace("name: mine", f"name: {file.stem}") if can_be_name else text

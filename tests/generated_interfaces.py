"""docs/commands.md and docs/api.md: what the command line and the public modules say of themselves."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import click
import typer

import netfold
import netfold.testing
import netfold.topology
import netfold.torch
from netfold.commands.main import app

MODULES = (netfold, netfold.topology, netfold.testing, netfold.torch)
SECTION = re.compile(r"^(\w+)\n-+\n((?:(?:\S.*|[ ]{4}.*)?\n)+?)(?=\Z|^\w+\n-+\n)", re.MULTILINE)
"""A section of a docstring in the form of NumPy's, such as "Raises"."""
ITEM = re.compile(r"^(\S.*)\n((?:(?:[ ]{4}.*)?\n)*)", re.MULTILINE)
EXAMPLE = re.compile(r"^\x08\n((?:.+\n)+)", re.MULTILINE)
"""Lines of a help text that are not wrapped."""
SIGNATURE_WIDTH = 100


def commands() -> str:
    """The page of all commands, with their arguments and options."""
    parts = [
        "# Commands",
        "Written by `make generated` from the sources; `netfold COMMAND --help` prints the same.",
        "Exit status: 0 success, 1 a check failed, a variant stalled or the result cannot be written, 2 bad "
        "usage, scenario or data, 3 a bug in netfold, 130 interrupted.",
    ]
    for name, command in leaves("netfold", typer.main.get_command(app)):
        usage = command.get_usage(click.Context(command, info_name=name)).removeprefix("Usage: ")
        options = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
        rows = [row(parameter) for parameter in options]
        table = (
            "\n".join(["| argument or option | default | meaning |", "|---|---|---|", *rows]) if rows else ""
        )
        text = EXAMPLE.sub(
            lambda found: textwrap.indent(found[1], "    "), inspect.cleandoc(command.help or "")
        )
        parts += [f"## {name}", f"    {' '.join(usage.split())}", text, table]
    return "\n\n".join(filter(None, parts)) + "\n"


def leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Commands that do something, by the words that call them."""
    members = getattr(command, "commands", {})
    if not members or command.invoke_without_command:
        yield name, command
    for word, member in members.items():
        if not member.hidden:
            yield from leaves(f"{name} {word}", member)


def row(parameter: Any) -> str:
    """A row for an argument or an option."""
    value = "" if getattr(parameter, "is_flag", False) else parameter.metavar or "N"
    names = ", ".join(parameter.opts) if parameter.param_type_name == "option" else ""
    default = "required" if parameter.required else parameter.default
    shown = "–" if default in (None, "", False) or callable(default) else default
    meaning = " ".join((parameter.help or "").split()).replace("|", r"\|")
    return f"| `{' '.join(filter(None, [names, value]))}` | {shown} | {meaning} |"


def api() -> str:
    """The page of the public modules: every name with its signature and what it says."""
    parts = ["# Python", "Written by `make generated` from the docstrings of the public modules."]
    for module in MODULES:
        parts += [f"## {module.__name__}", markdown(module)]
        for name in module.__all__:
            parts += entry(f"{module.__name__}.{name}", getattr(module, name))
    return "\n\n".join(filter(None, parts)) + "\n"


def entry(name: str, value: Any) -> list[str]:
    """What there is to say of a public name."""
    if isinstance(value, ModuleType):
        return []
    if not callable(value):
        return [f"### {name}", f"`{value!r}`"]
    if not isinstance(value, type):
        return [f"### {name}", signature(name, value), markdown(value)]
    public = {key: member for key, member in vars(value).items() if not key.startswith("_")}
    members = {key: member for key, member in public.items() if inspect.getdoc(member)}
    parts = [f"### {name}", markdown(value)]
    for key, member in members.items():
        if isinstance(member, property):
            parts.append(f"`{key}`: {markdown(member)}")
        elif inspect.isfunction(member) or isinstance(member, classmethod | staticmethod):
            parts += [signature(key, inspect.unwrap(getattr(value, key))), markdown(member)]
    return parts


def signature(name: str, function: Any) -> str:
    """How a function is called, as a block of code."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(node, ast.FunctionDef)
    node.args.args = [argument for argument in node.args.args if argument.arg not in ("self", "cls")]
    Constants(function.__globals__).visit(node.args)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    text = f"{name}({ast.unparse(node.args)}){returns}"
    lines = textwrap.wrap(
        text, SIGNATURE_WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(["```python", *lines, "```"])


class Constants(ast.NodeTransformer):
    """Puts the values of numbers and texts in the place of their names."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.AST:
        value = self.values.get(node.id)
        return ast.Constant(value) if isinstance(value, int | float | str) else node


def markdown(documented: Any) -> str:
    """A docstring, whose sections are lists."""
    return SECTION.sub(_section, f"{inspect.getdoc(documented) or ''}\n").strip()


def _section(found: re.Match[str]) -> str:
    items = [f"* `{name}`: {' '.join(meaning.split())}" for name, meaning in ITEM.findall(found[2])]
    return "\n".join([f"**{found[1]}**", "", *items, "", ""])

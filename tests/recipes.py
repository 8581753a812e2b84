"""The recipes of docs/recipes.md, put into the sources.

    python -m tests.recipes "A codec option"

A block of Python there is a new file, what is put at the end of a file, or what is put beside a symbol:

    # netfold/homomorphic/codecs/mine.py
    # at the end of netfold/sim/scenario/faults.py
    # in netfold/homomorphic/codecs/topk.py, after TopK.share

A symbol is a name in a file, or in a class or table of it: a field, a method, a keyword of a call, a row by
its first value. Code stands before it, after it, in place of it, or at its end: of a body, of a table, of a
docstring.
"""

from __future__ import annotations

import ast
import re
import sys
from itertools import zip_longest
from textwrap import indent
from typing import Any

from tests import ROOT

RECIPES = ROOT / "docs" / "recipes.md"
SIDES = "before|after|in place of|at the end of"
PART = re.compile(rf"^# (?:(at the end of|in) )?(\S+\.py)(?:, ({SIDES}) (\S+))?$", re.M)


def chapter(heading: str) -> str:
    """The text below a heading."""
    text = RECIPES.read_text("utf-8")
    (found,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return str(found)


def files(heading: str) -> dict[str, str]:
    """What the files of a recipe hold when it is done, by path: new ones, longer ones, and changed ones."""
    contents: dict[str, str] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", chapter(heading), re.MULTILINE | re.DOTALL):
        parts = PART.split(block)[1:]
        for where, path, side, symbol, part in zip(*(iter(parts),) * 5, strict=True):
            text = contents.get(path) or (source(path) if where else "")
            assert (ROOT / path).exists() == bool(where), path
            code = part.strip("\n") + "\n"
            if symbol:
                contents[path] = put(text, side, symbol, code)
            else:
                contents[path] = f"{text}\n\n{code}" if where else code
    return contents


def source(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def put(text: str, side: str, symbol: str, code: str) -> str:
    """A text with code beside a symbol or at the end of it, indented as what is there."""
    names = symbol.split(".")
    node, after = found(ast.parse(text), names, symbol)
    lines = text.splitlines(keepends=True)
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))]) - 1
    last, column = after.end_lineno, node.col_offset
    if side == "at the end of":
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            column = node.body[0].col_offset
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            named = node.targets[0] if isinstance(node, ast.Assign) else node.target
            table = named if isinstance(named, ast.Tuple) else node.value
            if table.lineno == table.end_lineno:  # on one line: before its bracket, if it has one
                end = table.end_col_offset - (table is node.value)
                line = lines[table.lineno - 1]
                lines[table.lineno - 1] = f"{line[:end]}, {code.strip()}{line[end:]}"
                return "".join(lines)
            last, column, code = node.end_lineno - 1, column + 4, elements(code)
        else:  # a docstring: before its last quotes
            last -= 1
    elif not isinstance(node, ast.stmt):
        code = elements(code)
    place = first if side == "before" else last
    if side == "in place of":
        del lines[first:last]
        place = first
    is_whole = column == 0 and code.startswith(("class ", "def ", "@"))
    begin, end = ("\n\n" * (is_whole and side == on) for on in ("after", "before"))
    return "".join([*lines[:place], begin, indent(code, " " * column), end, *lines[place:]])


def elements(code: str) -> str:
    """Expressions and assignments as rows of a table, or arguments of a call."""
    return "".join(f"{ast.get_source_segment(code, node)},\n" for node in ast.parse(code).body)


def found(tree: ast.AST, names: list[str], symbol: str) -> tuple[Any, Any]:
    """The node of a symbol, and the last one that belongs to it: the docstring of a field."""
    name, *others = names
    body = getattr(tree, "body", [])
    if name == "__doc__":
        return body[0], body[0]
    for node, following in zip_longest(body, body[1:]):
        if name in names_of(node):
            if others:
                return found(node, others, symbol)
            is_explained = isinstance(node, ast.AnnAssign) and is_text(following)
            return node, following if is_explained else node
    inside = [
        node
        for node in ast.walk(tree)
        if (isinstance(node, ast.keyword) and node.arg == name)
        or (isinstance(node, ast.Call) and any(getattr(one, "value", None) == name for one in node.args[:1]))
    ]
    assert len(inside) == 1, f"{symbol} is in {len(inside)} places"
    return inside[0], inside[0]


def names_of(node: ast.AST) -> set[str]:
    """The names that a statement defines or imports."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return {node.name}
    if isinstance(node, ast.ImportFrom):
        return {alias.name for alias in node.names}
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return {one.id for target in targets if target for one in ast.walk(target) if isinstance(one, ast.Name)}


def is_text(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


if __name__ == "__main__":
    for path, text in files(sys.argv[1]).items():
        (ROOT / path).write_text(text, "utf-8")
        print(path)

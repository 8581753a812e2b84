"""Puts faults into a syntax tree, each behind a switch that is read at run time.

An expression becomes `(after if _is_on(number) else before)`, statements become `if _is_on(number): after`
and `else: before`. In compiled functions the switch is a word in memory (`netfold_switch.py`), no constant.
Faults may lie within each other.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

IMPORT = "from netfold_switch import is_on as _is_on, is_on_compiled as _is_on_compiled"


class SwitchError(ValueError):
    """A fault that cannot be switched at run time."""


@dataclass
class Where:
    """The context of a node."""

    is_in_function: bool = False
    is_compiled: bool = False
    names: list[str] = field(default_factory=list)  # assigned by a statement outside of functions


@dataclass
class Edit:
    """An expression, or statements of one block, with their replacement."""

    where: Where
    block: list[Any]  # of statements, or of one expression's siblings; empty: the expression is a field
    nodes: list[Any]  # the original ones
    after: list[Any]
    following: Any = None  # statement that comes next, if `nodes` is empty
    parent: ast.AST | None = None  # of an expression that is a field
    name: str = ""  # that field

    def width(self) -> int:
        """Number of syntax nodes that it covers."""
        return sum(1 for node in self.nodes for _ in ast.walk(node))


def switched(tree: ast.Module, numbered: Sequence[tuple[int, Edit]]) -> str:
    """The text of a file with all its faults, each behind its number; changes the tree."""
    wrapped: dict[int, Any] = {}  # the replacement of a node, by its identity
    for number, edit in sorted(numbered, key=lambda pair: pair[1].width()):  # the inner ones first
        _apply(edit, number, wrapped)
    position = sum(_is_head(node) for node in tree.body)
    tree.body[position:position] = ast.parse(IMPORT).body
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _is_head(node: ast.stmt) -> bool:
    """The module's docstring or an import from the future."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _apply(edit: Edit, number: int, wrapped: dict[int, Any]) -> None:
    name = "_is_on_compiled" if edit.where.is_compiled else "_is_on"
    test = ast.Call(ast.Name(name, ast.Load()), [ast.Constant(number)], [])
    current: list[Any] = []
    for node in edit.nodes:
        replacement = wrapped.get(id(node), node)
        if not current or current[-1] is not replacement:
            current.append(replacement)
    whole: Any
    if edit.parent is not None:
        whole = ast.IfExp(test, edit.after[0], current[0])
        setattr(edit.parent, edit.name, whole)
    elif edit.nodes and isinstance(edit.nodes[0], ast.expr):
        whole = ast.IfExp(test, edit.after[0], current[0])
        edit.block[_place(edit.block, current[0])] = whole
    else:
        whole = ast.If(test, edit.after, current)
        if current:
            first = _place(edit.block, current[0])
            if edit.block[first : first + len(current)] != current:
                raise SwitchError("two faults overlap without one being within the other")
            edit.block[first : first + len(current)] = [whole]
        else:
            following = wrapped.get(id(edit.following), edit.following)
            place = len(edit.block) if following is None else _place(edit.block, following)
            edit.block.insert(place, whole)
    for node in edit.nodes:
        wrapped[id(node)] = whole


def _place(block: list[Any], node: Any) -> int:
    for index, each in enumerate(block):
        if each is node:
            return index
    raise SwitchError("two faults overlap without one being within the other")

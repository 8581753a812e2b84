"""Puts faults into a syntax tree, each behind a switch that is read at run time.

An expression becomes `(after if _is_on(number) else before)`, statements become `if _is_on(number): after`
and `else: before`. In compiled functions the switch is a word in memory (`netfold_switch.py`), no constant.
Faults may lie within each other. A fault by hand is the difference of the trees of two texts.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.mutants.compiled import Frozen, compiled_functions
from tests.mutants.fault import Fault

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


NEVER_SWITCHED = {"annotation", "returns", "decorator_list", "ctx", "op", "ops", "target", "targets"}

# Compiled code cannot choose the object of an attribute at run time: rows of different tables differ in type.
NEVER_CHOSEN = {(ast.Attribute, "value"), (ast.Subscript, "value"), (ast.Call, "func")}


class AnchorError(ValueError):
    """A fault's text is not in its file, or not once."""


def edit_by_hand(fault: Fault, source: str, tree: ast.Module, frozen: Frozen = ()) -> Edit:
    """The fault as an edit of the file's tree.

    Raises
    ------
    AnchorError
        Its anchor is not in the text exactly once.
    SwitchError
        It is in code that does not run, such as a signature, or in a constant that compiled code freezes.
    """
    edit = _Differences(tree).between(tree, ast.parse(_with(fault, source)), Where())
    if edit is None:
        raise SwitchError(f"{fault.file}: the fault {fault.text!r} cannot be switched while the program runs")
    names = set(edit.where.names)
    if not edit.where.is_in_function and names & {name for file, name in frozen if file == fault.file}:
        raise SwitchError(
            f"{fault.file}: the fault {fault.text!r} is in a constant that compiled code freezes"
        )
    return edit


def _with(fault: Fault, source: str) -> str:
    """The file's text with the fault in it."""
    count = source.count(fault.before)
    if count != 1:
        raise AnchorError(
            f"{fault.file}: the fault {fault.text!r} is anchored by {fault.before!r}, which is there "
            f"{count} times; must be there once: give the text that is there now, or a longer piece of it"
        )
    return source.replace(fault.before, fault.after)


class _Differences:
    """The smallest edit that makes one tree another."""

    def __init__(self, tree: ast.Module) -> None:
        self._compiled = compiled_functions(tree)
        self._known: dict[tuple[int, int], bool] = {}  # statements that were compared, by their identities

    def between(self, before: ast.AST, after: ast.AST, where: Where) -> Edit | None:
        """The smallest edit within a node that makes it another; None if nothing within can be switched."""
        if type(before) is not type(after):
            return None
        where = self._inside(before, where)
        differing = [
            name for name in before._fields if not self._same(getattr(before, name), getattr(after, name))
        ]
        if len(differing) != 1 or differing[0] in NEVER_SWITCHED:
            return None
        (name,) = differing
        if (type(before), name) in NEVER_CHOSEN:
            return None
        old, new = getattr(before, name), getattr(after, name)
        if isinstance(old, list):
            return self._of_lists(old, new, before, where)
        if not isinstance(old, ast.AST) or not isinstance(new, ast.AST):
            return None
        inner = self.between(old, new, where)
        if inner is None and _is_switchable(old, new, before):
            return Edit(where, [], [old], [new], parent=before, name=name)
        return inner

    def _inside(self, node: ast.AST, where: Where) -> Where:
        """The context of the parts of a node."""
        if isinstance(node, ast.FunctionDef):
            return Where(True, where.is_compiled or node in self._compiled)
        if not where.is_in_function and isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            return Where(names=[target.id for target in targets if isinstance(target, ast.Name)])
        return where

    def _of_lists(self, old: list[Any], new: list[Any], parent: ast.AST, where: Where) -> Edit | None:
        first = 0
        while first < min(len(old), len(new)) and self._same(old[first], new[first]):
            first += 1
        behind = 0
        while behind < min(len(old), len(new)) - first and self._same(old[-1 - behind], new[-1 - behind]):
            behind += 1
        nodes, after = old[first : len(old) - behind], new[first : len(new) - behind]
        if len(nodes) == len(after) == 1:
            inner = self.between(nodes[0], after[0], where)
            if inner is not None:
                return inner
            if _is_switchable(nodes[0], after[0], parent):
                return Edit(where, old, nodes, after)
        if not all(isinstance(node, ast.stmt) for node in (*nodes, *after)):
            return None
        if not where.is_in_function:
            return None  # definitions, which others import
        following = old[len(old) - behind] if behind else None
        return Edit(where, old, nodes, after or [ast.Pass()], following)

    def _same(self, first: Any, second: Any) -> bool:
        if isinstance(first, ast.stmt):
            key = id(first), id(second)
            if key not in self._known:
                self._known[key] = self._same_parts(first, second)
            return self._known[key]
        if isinstance(first, ast.AST):
            return self._same_parts(first, second)
        if isinstance(first, list):
            return len(first) == len(second) and all(map(self._same, first, second))
        return type(first) is type(second) and bool(first == second)

    def _same_parts(self, first: ast.AST, second: ast.AST) -> bool:
        return type(first) is type(second) and all(
            self._same(getattr(first, name, None), getattr(second, name, None)) for name in first._fields
        )


def _is_switchable(old: Any, new: Any, parent: ast.AST) -> bool:
    """Whether the choice between two expressions can be made at run time."""
    for node in (old, new):
        if not isinstance(node, ast.expr) or isinstance(node, ast.Slice | ast.Starred | ast.FormattedValue):
            return False
        if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return False
        if isinstance(node, ast.Tuple) and any(isinstance(part, ast.Slice) for part in node.elts):
            return False
    return not isinstance(parent, ast.JoinedStr | ast.pattern)

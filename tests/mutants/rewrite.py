"""Puts faults into a source, each behind a switch that is read at run time.

The text with a fault and the text without are compared as syntax trees. An expression that differs
becomes `(after if _is_on(number) else before)`; else statements become `if _is_on(number): after` and
`else: before`. In compiled functions the switch is a word in memory (`netfold_switch.py`), not a constant.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.mutants.mutant import Mutant

COMPILED_BY = {"kernel", "inlined"}  # decorators of `homomorphic.kernels.compiled`
COMPILED_LATER = {"_rare", "_atp"}  # given to `address_of` in `sim/engine/loop/cold_handlers.py`
IMPORT = "from netfold_switch import is_on as _is_on, is_on_compiled as _is_on_compiled"
NEVER_SWITCHED = {"annotation", "returns", "decorator_list", "ctx", "op", "ops", "target", "targets"}

# Compiled code cannot choose the object of an attribute at run time: rows of different tables differ in type.
NEVER_CHOSEN = {(ast.Attribute, "value"), (ast.Subscript, "value"), (ast.Call, "func")}


class AnchorError(ValueError):
    """A fault's text is not in its file, or not once."""


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


def mutated_text(text: str, mutant: Mutant) -> str:
    """The file's text with the fault in it.

    Raises
    ------
    AnchorError
        Its anchor is not in the text exactly once.
    """
    found = text.count(mutant.before)
    if found != 1:
        raise AnchorError(
            f"{mutant.file}: the fault {mutant.name!r} is anchored by {mutant.before!r}, which is there "
            f"{found} times; must be there once: give the text that is there now, or a longer piece of it"
        )
    return text.replace(mutant.before, mutant.after)


def rewritten(text: str, numbered: Sequence[tuple[int, Mutant]], frozen: Collection[str] = ()) -> str:
    """A file's text with all its faults, each behind its number; `frozen` are names that compiled code uses.

    Raises
    ------
    AnchorError
        As `mutated_text`.
    SwitchError
        A fault in code that does not run, such as a signature, or in a constant that compiled code freezes.
    """
    tree = ast.parse(text)
    edits = []
    for number, mutant in numbered:
        edit = _difference(tree, ast.parse(mutated_text(text, mutant)), Where())
        if edit is None:
            raise SwitchError(
                f"{mutant.file}: the fault {mutant.name!r} cannot be switched while the program runs"
            )
        if not edit.where.is_in_function and set(edit.where.names) & set(frozen):
            raise SwitchError(
                f"{mutant.file}: the fault {mutant.name!r} is in a constant that compiled code freezes"
            )
        edits.append((number, edit))
    wrapped: dict[int, Any] = {}  # the replacement of a node, by its identity
    for number, edit in sorted(edits, key=lambda each: each[1].width()):  # the inner ones first
        _apply(edit, number, wrapped)
    position = sum(_is_head(node) for node in tree.body)
    tree.body[position:position] = ast.parse(IMPORT).body
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def names_in_compiled(text: str) -> set[str]:
    """All names that compiled functions of a file use."""
    names: set[str] = set()
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef) and _is_compiled(function):
            for node in ast.walk(function):
                if isinstance(node, ast.Name | ast.Attribute):
                    names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return names


def _is_head(node: ast.stmt) -> bool:
    """The module's docstring or an import from the future."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _is_compiled(function: ast.FunctionDef) -> bool:
    names = {node.id for node in function.decorator_list if isinstance(node, ast.Name)}
    return bool(names & COMPILED_BY) or function.name in COMPILED_LATER


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, ast.AST) and isinstance(other, ast.AST):
        return ast.dump(one) == ast.dump(other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and one == other


def _difference(before: ast.AST, after: ast.AST, where: Where) -> Edit | None:
    """The smallest edit within a node that makes it another; None if nothing within can be switched."""
    if type(before) is not type(after):
        return None
    where = _inside(before, where)
    differing = [name for name in before._fields if not _same(getattr(before, name), getattr(after, name))]
    if len(differing) != 1 or differing[0] in NEVER_SWITCHED:
        return None
    (name,) = differing
    if (type(before), name) in NEVER_CHOSEN:
        return None
    old, new = getattr(before, name), getattr(after, name)
    if isinstance(old, list):
        return _difference_of_lists(old, new, before, where)
    if not isinstance(old, ast.AST) or not isinstance(new, ast.AST):
        return None
    inner = _difference(old, new, where)
    if inner is None and _is_switchable(old, new, before):
        return Edit(where, [], [old], [new], parent=before, name=name)
    return inner


def _inside(node: ast.AST, where: Where) -> Where:
    """The context of the parts of a node."""
    if isinstance(node, ast.FunctionDef):
        return Where(True, where.is_compiled or _is_compiled(node))
    if not where.is_in_function and isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return Where(names=[each.id for each in targets if isinstance(each, ast.Name)])
    return where


def _difference_of_lists(old: list[Any], new: list[Any], parent: ast.AST, where: Where) -> Edit | None:
    first = 0
    while first < min(len(old), len(new)) and _same(old[first], new[first]):
        first += 1
    behind = 0
    while behind < min(len(old), len(new)) - first and _same(old[-1 - behind], new[-1 - behind]):
        behind += 1
    nodes, after = old[first : len(old) - behind], new[first : len(new) - behind]
    if len(nodes) == len(after) == 1:
        inner = _difference(nodes[0], after[0], where)
        if inner is not None:
            return inner
        if _is_switchable(nodes[0], after[0], parent):
            return Edit(where, old, nodes, after)
    if not all(isinstance(each, ast.stmt) for each in (*nodes, *after)):
        return None
    if not where.is_in_function:
        return None  # definitions, which others import
    following = old[len(old) - behind] if behind else None
    return Edit(where, old, nodes, after or [ast.Pass()], following)


def _is_switchable(old: Any, new: Any, parent: ast.AST) -> bool:
    """Whether the choice between two expressions can be made at run time."""
    for node in (old, new):
        if not isinstance(node, ast.expr) or isinstance(node, ast.Slice | ast.Starred | ast.FormattedValue):
            return False
        if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return False
        if isinstance(node, ast.Tuple) and any(isinstance(each, ast.Slice) for each in node.elts):
            return False
    return not isinstance(parent, ast.JoinedStr | ast.pattern)


def _apply(edit: Edit, number: int, wrapped: dict[int, Any]) -> None:
    name = "_is_on_compiled" if edit.where.is_compiled else "_is_on"
    test = ast.Call(ast.Name(name, ast.Load()), [ast.Constant(number)], [])
    now: list[Any] = []
    for node in edit.nodes:
        current = wrapped.get(id(node), node)
        if not now or now[-1] is not current:
            now.append(current)
    if edit.parent is not None:
        whole: Any = ast.IfExp(test, edit.after[0], now[0])
        setattr(edit.parent, edit.name, whole)
    elif edit.nodes and isinstance(edit.nodes[0], ast.expr):
        whole = ast.IfExp(test, edit.after[0], now[0])
        edit.block[_place(edit.block, now[0])] = whole
    else:
        whole = ast.If(test, edit.after, now)
        if now:
            first = _place(edit.block, now[0])
            if edit.block[first : first + len(now)] != now:
                raise SwitchError("two faults overlap without one being within the other")
            edit.block[first : first + len(now)] = [whole]
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

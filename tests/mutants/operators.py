"""Deliberate faults that are made from the syntax tree of a file.

Left out is what no test can see or no switch can change: signatures, annotations, decorators, texts and what
is raised, what only type checkers read, and values that compiled code has frozen. In compiled code a fault
must keep the types, so fewer are made there; one that does not compile all the same is dropped (`tree.py`).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from copy import copy
from typing import Any, NamedTuple

from tests.mutants.compiled import Frozen, compiled_functions, is_run_by_the_compiler
from tests.mutants.edits import Edit, Where
from tests.mutants.fault import Fault

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
OPPOSITES = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "argmin": "argmax",
    "argmax": "argmin",
    "any": "all",
    "all": "any",
}
TEXTS = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)  # operands that arithmetic is no fault of
SKIPPED = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.arguments, ast.pattern)
CALLS_OF_TYPES = {"cast", "isinstance", "issubclass", "TypeVar"}


class Change(NamedTuple):
    """A fault of one node: the operator's name, and what the node becomes; no node: it is dropped."""

    operator: str
    after: Any


def generated(file: str, source: str, tree: ast.Module, frozen: Frozen = ()) -> list[tuple[Fault, Edit]]:
    """All faults of a file, in order."""
    lines = source.splitlines()
    occurrences: Counter[tuple[object, ...]] = Counter()
    faults = []
    for node, change, edit in _Walk(tree, {name for where, name in frozen if where == file}).module(tree):
        after = ast.unparse(change.after) if change.after is not None else ""
        text = lines[node.lineno - 1].strip()
        fault = Fault(file, node.lineno, text, change.operator, ast.unparse(node), after)
        faults.append((fault._replace(occurrence=occurrences[fault.key]), edit))
        occurrences[fault.key] += 1
    return faults


class _Walk:
    """One way through a file; yields nodes with their changes."""

    def __init__(self, tree: ast.Module, frozen: set[str]) -> None:
        self._compiled, self._frozen = compiled_functions(tree), frozen

    def module(self, tree: ast.Module) -> Iterator[tuple[Any, Change, Edit]]:
        yield from self._block(tree.body, Where(), tree)

    def _block(self, block: list[Any], where: Where, parent: ast.AST) -> Iterator[tuple[Any, Change, Edit]]:
        for index, node in enumerate(block):
            if where.is_in_function:
                is_last = index == len(block) - 1
                for change in _of_statement(node, parent, is_last):
                    after = change.after if change.after is not None else ast.Pass()
                    yield node, change, Edit(where, block, [node], [after])
            yield from self._within(node, where, parent)

    def _within(self, node: Any, where: Where, parent: ast.AST) -> Iterator[tuple[Any, Change, Edit]]:
        """The faults of the parts of a node."""
        if isinstance(node, SKIPPED) or _is_for_tools(node):
            return
        if isinstance(parent, ast.Module) and _defined(node) & self._frozen:
            return
        if isinstance(node, ast.FunctionDef):
            if is_run_by_the_compiler(node):
                return
            inner = Where(True, where.is_compiled or node in self._compiled)
            yield from self._block(node.body, inner, node)
            return
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "type_comment", "decorator_list", "keywords", "bases") and isinstance(
                node, ast.AnnAssign | ast.ClassDef
            ):
                continue
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield from self._block(value, where, node)
            elif isinstance(value, list):
                for child in value:
                    yield from self._expression(child, where, node, value, "")
            elif isinstance(value, ast.AST):
                yield from self._expression(value, where, node, [], name)

    def _expression(
        self, node: Any, where: Where, parent: Any, siblings: list[Any], name: str
    ) -> Iterator[tuple[Any, Change, Edit]]:
        is_switchable = isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        if is_switchable and not _is_type_or_text(node, parent, name):
            for change in _of_expression(node, parent, name, where.is_compiled):
                if siblings:
                    yield node, change, Edit(where, siblings, [node], [change.after])
                else:
                    yield node, change, Edit(where, [], [node], [change.after], parent=parent, name=name)
        if isinstance(node, ast.AST):
            yield from self._within(node, where, parent)


def _of_statement(node: ast.stmt, parent: ast.AST, is_last: bool) -> Iterator[Change]:
    """The faults of a statement as a whole."""
    dropped = Change("dropped statement", None)
    match node:
        case ast.Expr(value=ast.Call()):
            yield dropped
        case ast.Assign() if all(isinstance(each, ast.Attribute | ast.Subscript) for each in node.targets):
            yield dropped
        case ast.AnnAssign(target=ast.Attribute() | ast.Subscript()) if node.value is not None:
            yield dropped
        case ast.AugAssign():
            yield dropped
            if type(node.op) in ARITHMETIC and not _is_text(node.value):
                changed = copy(node)
                changed.op = ARITHMETIC[type(node.op)]()
                yield Change("arithmetic", changed)
        case ast.Raise() if node.exc is not None:
            yield dropped
        case ast.Return() | ast.Continue() if isinstance(parent, ast.If) and is_last:
            yield dropped


def _of_expression(node: ast.expr, parent: ast.AST, name: str, is_compiled: bool) -> Iterator[Change]:
    """The faults of an expression; its parts come by themselves."""
    match node:
        case ast.Compare():
            yield from _comparisons(node, is_compiled)
        case ast.BoolOp():
            changed = copy(node)
            changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield Change("and or or", changed)
        case ast.UnaryOp(op=ast.Not()):
            yield Change("not", ast.Call(ast.Name("bool", ast.Load()), [node.operand], []))
        case ast.BinOp() if type(node.op) in ARITHMETIC and not (_is_text(node.left) or _is_text(node.right)):
            exchanged = copy(node)
            exchanged.op = ARITHMETIC[type(node.op)]()
            yield Change("arithmetic", exchanged)
        case ast.Constant(value=bool()):
            yield Change("constant", ast.Constant(not node.value))
        case ast.Constant(value=int(number)) if not (is_compiled and _is_place(parent, name)):
            yield Change("constant", ast.Constant(0 if number == 1 else number + 1))
        case ast.Call():
            yield from _calls(node)
    if isinstance(node, ast.Name | ast.Attribute | ast.Call):
        if name == "test" and isinstance(parent, ast.If | ast.IfExp):
            yield Change("condition", ast.UnaryOp(ast.Not(), node))
        if _is_count(node, parent, name):
            if not is_compiled:  # which would read beyond the end, and notice it on some days
                yield Change("plus or minus one", ast.BinOp(node, ast.Add(), ast.Constant(1)))
            yield Change("plus or minus one", ast.BinOp(node, ast.Sub(), ast.Constant(1)))


def _comparisons(node: ast.Compare, is_compiled: bool) -> Iterator[Change]:
    for index, operator in enumerate(node.ops):
        if is_compiled and isinstance(operator, ast.Is | ast.IsNot):
            continue  # decided when it is compiled
        for replacement in COMPARISONS[type(operator)]:
            changed = copy(node)
            changed.ops = [*node.ops[:index], replacement(), *node.ops[index + 1 :]]
            changed.comparators = list(node.comparators)
            yield Change("comparison", changed)


def _calls(node: ast.Call) -> Iterator[Change]:
    function = copy(node.func)
    if isinstance(function, ast.Name) and function.id in OPPOSITES:
        function.id = OPPOSITES[function.id]
    elif isinstance(function, ast.Attribute) and function.attr in OPPOSITES:
        function.attr = OPPOSITES[function.attr]
    else:
        return
    yield Change("min or max", ast.Call(function, list(node.args), list(node.keywords)))


def _is_count(node: ast.expr, parent: ast.AST, name: str) -> bool:
    """Whether it is a whole number for certain: a size, a bound of a slice or of a range."""
    if isinstance(node, ast.Attribute) and node.attr == "size":
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
        return True
    if isinstance(parent, ast.Slice):
        return name in ("lower", "upper")
    is_range = (
        isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "range"
    )
    return is_range and node is parent.args[min(1, len(parent.args) - 1)]  # type: ignore[attr-defined]


def _is_place(parent: ast.AST, name: str) -> bool:
    """Whether a constant is the whole index of something: compiled code would read beyond its end."""
    return isinstance(parent, ast.Subscript) and name == "slice"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, TEXTS) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _is_type_or_text(node: ast.expr, parent: ast.AST, name: str) -> bool:
    """What a switch cannot choose, or what is no expression of a value."""
    if isinstance(node, ast.Slice | ast.Starred | ast.FormattedValue):
        return True
    if name == "func" or (name == "value" and isinstance(parent, ast.Attribute | ast.Subscript)):
        return not isinstance(node, ast.Compare | ast.BinOp | ast.BoolOp)
    if (
        isinstance(parent, ast.Call)
        and isinstance(parent.func, ast.Name)
        and parent.func.id in CALLS_OF_TYPES
    ):
        return node in parent.args[1:] or parent.func.id != "isinstance"
    return False


def _defined(node: ast.AST) -> set[str]:
    """Names that a statement outside of functions defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return set()


def _is_for_tools(node: ast.AST) -> bool:
    """Whether only type checkers, or only those who start a file as a program, run it."""
    if "__all__" in _defined(node):
        return True
    if not isinstance(node, ast.If):
        return False
    test = ast.unparse(node.test)
    return "TYPE_CHECKING" in test or "__name__" in test

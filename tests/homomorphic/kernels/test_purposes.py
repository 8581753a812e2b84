"""Purposes of keyed numbers: different where they share a key, and named at every draw."""

from __future__ import annotations

import ast
from pathlib import Path

from netfold.homomorphic.kernels import purposes
from netfold.sim.engine.interface import Fate
from tests import ROOT

DRAWING = {"mix", "mix_plain", "packet_key", "to_point"}
SOURCES = [
    path for room in ("homomorphic", "switch", "topologies", "sim") for path in (ROOT / room).rglob("*.py")
]


def test_purposes_that_share_a_key_differ() -> None:
    numbers = {name: value for name, value in vars(purposes).items() if name.isupper()}
    del numbers["RING_FLOW_SEED"], numbers["FATE"]
    used = [*numbers.values(), *(purposes.FATE + fate for fate in Fate)]

    assert len(set(used)) == len(used)


def test_every_purpose_has_a_name() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}"
        for path in SOURCES
        for call in calls(path)
        if any(map(is_bare, call.args))
    ]
    assert found == []


def test_every_purpose_is_used() -> None:
    used = {
        node.attr
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "purposes"
    }
    assert used == {name for name in vars(purposes) if name.isupper()}


def calls(path: Path) -> list[ast.Call]:
    """Where keyed numbers are drawn."""
    return [
        node
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in DRAWING
    ]


def is_bare(argument: ast.expr) -> bool:
    """Whether an argument is an integer, or a sum with one."""
    if isinstance(argument, ast.BinOp) and isinstance(argument.op, ast.Add):
        return is_bare(argument.left) or is_bare(argument.right)
    return isinstance(argument, ast.Constant) and isinstance(argument.value, int)

"""Kinds of packets: each belongs to one group, and the groups are in the order that dispatch relies on."""

from __future__ import annotations

import ast

from netfold.sim.engine.tables import world
from tests import ROOT

GROUPS = (
    world.HOT_KINDS,
    (world.LOOP,),
    world.KINDS_AT_ATP_SWITCH,
    world.KINDS_AT_ATP_HOSTS,
    (world.SPLIT,),
)


def test_groups_cover_all_kinds_once() -> None:
    assert [kind for group in GROUPS for kind in group] == list(range(11))
    assert max(world.HOT_KINDS) == world.LAST_HOT_KIND


def test_packets_are_of_these_kinds_alone() -> None:
    """What some code gives a packet as its kind is in a group: a new kind has to be put into one."""
    given = {
        ast.unparse(node.value)
        for path in (ROOT / "sim/engine").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith(".kind")
    }
    assert sorted(getattr(world, name) for name in given) == list(range(11))

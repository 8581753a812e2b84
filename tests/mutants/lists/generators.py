"""Faults of generated topologies, graphs from files, and changes by pattern."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

K = "tests/topologies/kinds/"
F = "tests/topologies/files/"

MUTANTS: list[Mutant] = [
    *faults(
        "topologies/kinds/fat_tree.py",
        [K + "test_shapes.py"],
        [
            (
                "all aggregation switches have the same core switches",
                "for core in range(aggregation * cores, (aggregation + 1) * cores):",
                "for core in range(cores):",
            ),
            (
                "core links have the rate of uplinks",
                "core_link = self.link(self.core_rate_bps, core_delay)",
                "core_link = self.link(self.uplink_rate_bps, core_delay)",
            ),
        ],
    ),
    *faults(
        "topologies/kinds/fat_tree.py",
        [K + "test_facts.py"],
        [
            (
                "the bisection forgets that the core may be slow",
                "aggregations * cores * self.core_rate_bps,",
                "aggregations * cores * self.core_rate_bps * self.k,",
            ),
        ],
    ),
    *faults(
        "topologies/kinds/dragonfly.py",
        [K + "test_shapes.py"],
        [
            (
                "ports that are left lead to the nearest groups on one side only, twice",
                "last = sorted([*half, *near, *(self.groups - one for one in near)])",
                "last = sorted([*half, *near, *near])",
            ),
            (
                "a port is left unused where it need not be",
                "return ports - ports % 2 * (self.groups % 2)",
                "return ports - ports % 2",
            ),
        ],
    ),
    *faults(
        "topologies/kinds/dragonfly.py",
        [K + "test_facts.py"],
        [
            (
                "the bisection holds with slow local links too",
                "if routers > 1 and on_global < on_local:",
                "if routers > 1 and on_global * 2 < on_local:",
            ),
        ],
    ),
    *faults(
        "topologies/direct.py",
        [K + "test_facts.py", K + "test_shapes.py"],
        [
            (
                "a dimension of two has two links",
                "sum(switches if size > 2 else switches // 2 for size in dimensions)",
                "sum(switches for size in dimensions)",
            ),
            (
                "both ways round are as long in odd dimensions",
                "sum(size > 2 and size % 2 == 0 for size in dimensions)",
                "sum(size > 2 for size in dimensions)",
            ),
        ],
    ),
    *faults(
        "topologies/kinds/bcube.py",
        [K + "test_shapes.py"],
        [
            (
                "servers of a switch are neighbours on every level",
                "number = server // (step * self.n) * step + server % step",
                "number = server // self.n",
            ),
        ],
    ),
    *faults(
        "topologies/kinds/rail_optimized.py",
        [K + "test_shapes.py", K + "test_facts.py"],
        [
            (
                "pods share their rails",
                'f"pod{gpu // per_pod}rail{gpu % per_island}"',
                'f"pod0rail{gpu % per_island}"',
            ),
            (
                "the closed form holds with slow NVLink",
                "if self.nvlink_rate_bps < 2 * self.rate_bps:",
                "if self.nvlink_rate_bps < 0:",
            ),
        ],
    ),
    *faults(
        "topologies/files/foreign.py",
        [F + "test_foreign.py"],
        [
            (
                "dark fibre counts beside links with a rate",
                "for edge in rated or edges]",
                "for edge in edges]",
            ),
            (
                "a place's longitude is its latitude",
                'for key in ("Latitude", "Longitude")]',
                'for key in ("Longitude", "Latitude")]',
            ),
        ],
    ),
    *faults(
        "topologies/overrides.py",
        ["tests/topologies/test_overrides.py"],
        [
            (
                "a pattern matches from one end alone",
                'or is_match(f"{b}-{a}") is not None',
                "or False",
            ),
        ],
    ),
]

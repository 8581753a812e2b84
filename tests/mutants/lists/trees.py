"""Faults of aggregation trees: their shapes, trees in parallel, multicast, and the placement of workers."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

MULTICAST = ["tests/sim/engine/test_trees.py"]
PARALLEL = ["tests/sim/collectives/test_parallel_trees.py"]
SHAPES = ["tests/sim/resolve/test_shapes.py"]
TRAFFIC = ["tests/sim/resolve/test_traffic.py"]

MUTANTS: list[Mutant] = [
    *faults(
        "sim/engine/switches/egress.py",
        MULTICAST,
        [
            (
                "copies for workers behind a split leave from the point",
                "            send_to_worker(world, index, node, receiver.stream)",
                "            send_to_worker(\n"
                "                world, index, world.points[world.packets[index].point].switch, receiver.stream\n"
                "            )",
            ),
            (
                "a split leaves out its last receiver",
                "send_copies(world.clock[0].at, index, row.switch, row.first_receiver, row.receivers_count)",
                "send_copies(world.clock[0].at, index, row.switch, row.first_receiver, row.receivers_count - 1)",
            ),
        ],
    ),
    *faults(
        "sim/engine/switches/egress.py",
        ["tests/sim/engine/test_equivalence.py::test_plans[any]"],
        [
            (
                "copies to all splits have one key",
                "number = world.jobs[receiver.job].points_count + receiver.index",
                "number = world.jobs[receiver.job].points_count + 0 * receiver.index",
            ),
        ],
    ),
    *faults(
        "sim/plan/multicast.py",
        MULTICAST,
        [
            ("results split at the first common switch", "len(splits), able[-1]", "len(splits), able[0]"),
            (
                "a switch that cannot split ends the sharing behind it",
                "            direct += _grow(splits, point, parent, rest, rules)\n            continue",
                "            direct += [way.child for way in rest]\n            continue",
            ),
        ],
    ),
    *faults(
        "sim/collectives/in_network/shares.py",
        PARALLEL,
        [
            (
                "short messages all take tree 0",
                "runs[(tree - number) % trees]",
                "runs[(tree + 0 * number) % trees]",
            ),
            (
                "shares are divided by their end",
                "run * least + min(run, more)",
                "run * least + max(run, more)",
            ),
            (
                "a word is sought in a tree's share as in the whole",
                "* self._unit_words * width\n",
                "* 0 * width\n",
            ),
        ],
    ),
    *faults(
        "sim/collectives/in_network/placement/traffic.py",
        TRAFFIC,
        [
            (
                "hops between points do not count",
                "+ _spanning_hops(self._between, points)",
                "+ 0 * _spanning_hops(self._between, points)",
            ),
            (
                "points are never dropped",
                "changed = [one for one in dropped if one]",
                "changed = [one for one in dropped if not one]",
            ),
        ],
    ),
    *faults(
        "sim/collectives/in_network/placement/relief.py",
        TRAFFIC,
        [
            (
                "a helper takes no child in return for its own",
                "min(room, surplus + is_new, len(movable))",
                "min(room, surplus, len(movable))",
            ),
            (
                "a full switch helps",
                "room = children_max(target) - (0 if is_new else",
                "room = children_max(target) + 1 - (0 if is_new else",
            ),
            ("one child too many moves", "surplus + is_new, len", "surplus + 2 * is_new, len"),
            (
                "the switch that relieves most goes first",
                "(move.hops_each, -move.relieved)",
                "(-move.relieved, move.hops_each)",
            ),
        ],
    ),
    *faults(
        "sim/collectives/in_network/placement/candidates.py",
        SHAPES,
        [
            (
                "all trees have the same root",
                "spread = sum(time * time for time in after.values())",
                "spread = 0 * sum(time * time for time in after.values())",
            ),
            (
                "parallel trees are not chosen by their traffic",
                'traffic = sum(load.values()) if self.section.tree == "traffic" else 0',
                "traffic = 0",
            ),
        ],
    ),
    *faults(
        "sim/collectives/in_network/placement/shapes.py",
        SHAPES,
        [
            ("core is any tier", '["tier"] == self._tier_max', '["tier"] <= self._tier_max'),
            (
                "one switch more than wanted",
                "combinations(others, count - 1), key=value",
                "combinations(others, min(count, len(others))), key=value",
            ),
        ],
    ),
    *faults(
        "topologies/placement.py",
        ["tests/topologies/test_placement.py"],
        [
            (
                "rails are filled by island",
                '(nodes[host]["rail"], nodes[host]["island"])',
                '(nodes[host]["island"], nodes[host]["rail"])',
            ),
            (
                "a shuffle ignores the seed",
                "mix_plain(seed, purposes.PLACEMENT, row)",
                "mix_plain(0, purposes.PLACEMENT, row)",
            ),
        ],
    ),
]

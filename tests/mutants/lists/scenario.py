"""Faults of scenario files, units, and what plans resolve to."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

S = "tests/sim/scenario/"
ROUTES, ERRORS = "tests/sim/resolve/test_plan_routes.py", "tests/sim/resolve/test_plan.py"

MUTANTS: list[Mutant] = [
    *faults(
        "sim/scenario/networks.py",
        ["tests/topologies/test_toy_topology.py"],
        [
            ("what is like another key has none of it", "read.get(like, 0)", "read.get(like + like, 1)"),
            ("inherited keys stand behind `kind`", "if one.name not in own", "if one.name in own"),
        ],
    ),
    *faults(
        "sim/units.py",
        ["tests/sim/test_units.py"],
        [
            (
                "rough figures may be less than the value",
                "self.format(-(-value // step) * step)",
                "self.format(value // step * step)",
            ),
            ("the largest value is refused", "if value > _LARGEST:", "if value >= _LARGEST:"),
            ("KiB is KB", '"KiB": 2**10, "MB"', '"KiB": 10**3, "MB"'),
            (
                "the shortest text of the smallest unit wins",
                "return min(reversed(texts), key=len)",
                "return min(texts, key=len)",
            ),
            ("a fraction of 1 is refused", "if not 0 <= fraction <= 1:", "if not 0 <= fraction < 1:"),
            (
                "time on the wire is rounded down",
                "return -(-size_bytes * 8 * PS_PER_S // rate_bps)",
                "return size_bytes * 8 * PS_PER_S // rate_bps",
            ),
            (
                "bytes per second are read as bits",
                '8 * factor for end in ("B/s", "Bps")',
                'factor for end in ("B/s", "Bps")',
            ),
        ],
    ),
    *faults(
        "sim/scenario/merge.py",
        [S + "test_load.py"],
        [
            (
                "a mapping of another kind is merged",
                "and old.plain != new.plain:",
                "and old.plain == new.plain and False:",
            ),
            (
                "the base wins",
                "merge(children[key], child) if key in children else child",
                "merge(child, children[key]) if key in children else child",
            ),
        ],
    ),
    *faults(
        "sim/collectives/timeouts.py",
        [ROUTES],
        [
            (
                "a ring waits for half as many windows",
                "AUTO_TRIPS = 4",
                "AUTO_TRIPS = 2",
            ),
            (
                "a ring's windows are one",
                "load[link] += windows * count",
                "load[link] += count",
            ),
        ],
    ),
    *faults(
        "topologies/routing/flows.py",
        ["tests/topologies/routing/test_flows.py"],
        [
            (
                "all flows have the same key",
                "return draw - draw % TURNS + (source + target + channel) % TURNS",
                "return 0",
            ),
            (
                "flows of all jobs go the same ways",
                "mix_plain(seed, purposes.FLOW_ROUTE, job, source, target, channel)",
                "mix_plain(seed, purposes.FLOW_ROUTE, 0, source, target, channel)",
            ),
            (
                "channels do not take ports in turn",
                "number = -1 - key if key < 0 else key if ways < 0 else splitmix64_plain(key << 32 | node)",
                "number = -1 - key if key < 0 else splitmix64_plain(key << 32 | node)",
            ),
            (
                "routes pick among all but the last way",
                "return number % abs(ways)",
                "return number % max(1, abs(ways) - 1)",
            ),
        ],
    ),
    *faults(
        "sim/collectives/in_network/placement/resolve.py",
        [ROUTES, ERRORS],
        [
            (
                "the workers of a tree go different ways",
                "self._tree_route(number) if is_tree else self._route(worker, SWITCHES)",
                "self._route(worker, SWITCHES)",
            ),
            (
                "the workers of one switch go the same way",
                "self._tree_route(number) if is_tree else self._route(worker, SWITCHES)",
                "self._tree_route(number)",
            ),
        ],
    ),
    *faults(
        "sim/collectives/in_network/placement/timers.py",
        [ERRORS],
        [
            (
                "a timeout is one round trip",
                "timeouts.usual_ps, 2 * trip_ps)",
                "timeouts.usual_ps, trip_ps + 1)",
            ),
            (
                "the first timeout is not checked",
                '    check_timeout(location, "first_timeout", first_timeout_ps, trip_ps)\n',
                "",
            ),
        ],
    ),
    *faults(
        "sim/collectives/timeouts.py",
        [ERRORS],
        [
            (
                "a timeout as long as a round trip passes",
                "if timeout_ps <= trip_ps:",
                "if timeout_ps < trip_ps:",
            ),
        ],
    ),
    *faults(
        "sim/collectives/in_network/placement/switches.py",
        ["tests/sim/resolve/test_plan_profiles.py", ERRORS, "tests/sim/scenario/test_jobs.py"],
        [
            ("several jobs are fitted as one", "jobs=len(others) + 1,", "jobs=1,"),
            (
                "a job's slots begin at those of the others",
                "            for job in self._jobs.get(node, ())\n        )",
                "            for job in ()\n        )",
            ),
        ],
    ),
]

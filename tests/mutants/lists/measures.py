"""Faults of measures, drawings and exports of topologies."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

T = "tests/topologies/measures/"

MUTANTS: list[Mutant] = [
    *faults(
        "topologies/measures/figures.py",
        [T + "test_measures.py"],
        [
            (
                "links are counted once",
                "links_count=2 * graph.number_of_edges()",
                "links_count=graph.number_of_edges()",
            ),
            (
                "a host is as far from itself as from others on its rack",
                " - np.diag(fabric.hosts_on_rack)\n",
                "\n",
            ),
        ],
    ),
    *faults(
        "topologies/measures/divisions.py",
        [T + "test_bisection.py"],
        [
            (
                "hosts change sides until they are equal in number",
                "(len(larger) - len(smaller)) // 2",
                "(len(larger) - len(smaller) + 1) // 2",
            ),
        ],
    ),
    *faults(
        "topologies/measures/bandwidth.py",
        [T + "test_bisection.py"],
        [
            (
                "hosts that a cut separates are free",
                "np.cumsum(rates[:half].astype(np.float64))",
                "np.zeros(half)",
            ),
            (
                "the worst traffic is never more than hosts send",
                "return fabric.hosts_count // 2 * slowest / worst",
                "return fabric.hosts_count // 2 * slowest",
            ),
        ],
    ),
    *faults(
        "topologies/measures/spread.py",
        [T + "test_bisection.py", T + "test_measures.py"],
        [
            (
                "every way carries all of the traffic's first share",
                "each = (flow[part.rows, part.columns] / ways)[part.origin]",
                "each = flow[part.rows, part.columns][part.origin]",
            ),
            (
                "paths to a rack are counted once a switch",
                "found = np.bincount(part.origin, beyond, part.rows.size)",
                "found = np.minimum(1, np.bincount(part.origin, beyond, part.rows.size))",
            ),
        ],
    ),
    *faults(
        "topologies/measures/diversity.py",
        [T + "test_measures.py"],
        [
            (
                "two paths may share a link",
                "if near not in before and (at, near) not in used:",
                "if near not in before:",
            ),
        ],
    ),
    *faults(
        "topologies/measures/cost.py",
        [T + "test_cost.py"],
        [
            (
                "the inside of a server has cables",
                "graph.edges(data=True) if inside.get(a) != b and inside.get(b) != a",
                "graph.edges(data=True)",
            ),
            (
                "30 m are across the hall",
                "WITHIN_ROW if delay_ps <= _ROW_PS else",
                "WITHIN_ROW if delay_ps < _ROW_PS else",
            ),
        ],
    ),
    *faults(
        "sim/collectives/in_network/estimate.py",
        ["tests/sim/collectives/test_estimates.py"],
        [
            (
                "every switch adds up",
                "sent = min(into[node], 1) if node in able else into[node]",
                "sent = min(into[node], 1)",
            ),
            (
                "results come back in no time",
                "ways_ps = 2 * sum(",
                "ways_ps = sum(",
            ),
        ],
    ),
    *faults(
        "topologies/layout/layout.py",
        ["tests/topologies/layout/test_layout.py"],
        [
            (
                "links run over switches that they do not lead to",
                "if _TOUCH < along < length - _TOUCH and abs(aside) < _TOUCH:",
                "if length < along and abs(aside) < _TOUCH:",
            ),
        ],
    ),
    *faults(
        "sim/report/networks/nodes.py",
        ["tests/sim/report/networks/test_utilisation.py"],
        [
            (
                "a link has the colour of its slower direction",
                "return max(self.busy.get((a, b), 0.0), self.busy.get((b, a), 0.0))",
                "return min(self.busy.get((a, b), 0.0), self.busy.get((b, a), 0.0))",
            ),
        ],
    ),
    *faults(
        "sim/topology/export.py",
        ["tests/sim/topology/test_topology.py"],
        [
            (
                "quotes in names end them",
                """.replace('"', '\\\\"')""",
                "",
            ),
        ],
    ),
]

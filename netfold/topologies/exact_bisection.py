"""The bisection of a small network as an integer program, solved exactly.

It needs SciPy, which netfold can do without: `pip install netfold[exact]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

EDGES_MAX = 600  # between switches: with more, no integer program is tried
_NODES_MAX = 4000  # of the search tree; a count, not a time, so that the result is the same on every machine
_WORK_MAX = 600_000  # edges times nodes: some ten seconds


class Rack(NamedTuple):
    """Hosts of one rate on a switch."""

    switch: int
    rate_bps: int
    hosts: int


def is_available() -> bool:
    # Whether SciPy is there.
    try:
        import scipy.optimize  # noqa: F401  late: it is optional, and slow to import
    except ImportError:
        return False
    return True


def by_program(links: NDArray[np.int64], racks: Sequence[Rack], bounds: tuple[int, int]) -> int | None:
    """The least rate between two halves of the hosts; None if the search gives up.

    Every switch is on one side, and of hosts with one rate on it so many. A link is cut if its ends are on
    two sides, as a host's is if it does not follow its switch. HiGHS (Huangfu and Hall, Mathematical
    Programming Computation 10, 2018) searches for the least sum of what is cut.

    Parameters
    ----------
    links
        (links, 3) two switches, numbered from 0, and the rate between them; each link once.
    racks
        Of each switch with hosts, by their rates.
    bounds
        What the rate is at least and at most.

    Raises
    ------
    ImportError
        SciPy is not installed.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # late: it is optional, and slow to import
    from scipy.sparse import coo_array

    if len(links) > EDGES_MAX:
        return None
    rack_rows, host_rates, counts = (np.array(part, np.int64) for part in zip(*racks, strict=True))
    rates = np.concatenate([links[:, 2], host_rates])
    unit, hosts_count = gcd(*rates.tolist()), int(counts.sum())
    # Variables: the side of each switch, hosts on side 1, then for edges and hosts what is cut.
    switches, groups = 1 + int(max(links[:, :2].max(initial=0), rack_rows.max())), rack_rows.size
    cuts = switches + groups + np.arange(rates.size)
    near = np.concatenate([links[:, 0], switches + np.arange(groups)])
    far = np.concatenate([links[:, 1], rack_rows])
    weight = np.concatenate([np.ones(len(links), np.int64), counts])
    row = np.arange(rates.size)
    matrix_rows = [np.tile(row, 3), np.tile(row, 3) + rates.size]  # cut ≥ near − far, and ≥ far − near
    ones = np.ones(rates.size)
    halves, total = 2 * rates.size, 2 * rates.size + 1
    constraints = coo_array(
        (
            np.concatenate([ones, -ones, weight, ones, ones, -weight, np.ones(groups), rates / unit]),
            (
                np.concatenate([*matrix_rows, np.full(groups, halves), np.full(rates.size, total)]),
                np.concatenate([*[cuts, near, far] * 2, switches + np.arange(groups), cuts]),
            ),
        )
    ).tocsr()
    half = hosts_count // 2
    upper = np.concatenate([np.ones(switches), counts, weight])
    upper[0] = hosts_count % 2  # equal halves can change sides
    solution = milp(
        np.concatenate([np.zeros(switches + groups), rates / unit]),
        integrality=np.arange(upper.size) < switches + groups,
        bounds=Bounds(0, upper),
        constraints=LinearConstraint(
            constraints,
            np.concatenate([np.zeros(2 * rates.size), [half, bounds[0] / unit]]),
            np.concatenate([np.full(2 * rates.size, np.inf), [half, bounds[1] / unit]]),
        ),
        options={"node_limit": min(_NODES_MAX, _WORK_MAX // max(1, len(links))), "mip_rel_gap": 0},
    )
    return round(solution.fun) * unit if solution.status == 0 else None

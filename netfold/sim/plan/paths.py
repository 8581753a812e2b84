"""Links that the packets of a job on switches pass."""

from __future__ import annotations

from collections.abc import Iterator

from netfold.sim.engine.interface import Job
from netfold.sim.plan.multicast import down_paths
from netfold.topologies.network import Network, path

ROOT = 0


def round_trip(network: Network, job: Job, worker: int) -> list[int]:
    """Links from a worker to the root and back, switch by switch of the tree."""
    return [link for links in _paths(network, job, worker) for link in links]


def into_switches(network: Network, job: Job) -> set[int]:
    """Links on the paths into the job's switches: from its workers, its other switches, and its server."""
    links: set[int] = set()
    for worker in range(len(job.hosts)):
        up, _, *between = _paths(
            network, job, worker
        )  # the path down to the worker enters no switch of the job
        links |= {*up, *(link for links in between for link in links)}
    if job.server is not None:
        links |= {*path(network, job.server.host, job.switch, job.server.route)}
    return links


def _paths(network: Network, job: Job, worker: int) -> Iterator[list[int]]:
    """Up to a worker's switch and down again, then up to that one's parent and down, and so on."""
    down = down_paths(network, job).to_child
    child, route = (True, worker), job.routes[worker]
    node, point = job.hosts[worker], job.homes[worker] if job.homes else ROOT
    while True:
        yield path(network, node, job.switches[point], route)
        yield list(down[point, job.children_of(point).index(child)])
        if point == ROOT:
            return
        branch = job.branches[point - 1]
        node, route, child, point = branch.switch, branch.route, (False, point), branch.parent

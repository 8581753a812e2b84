"""Assigns workers and servers to hosts; each host runs at most one of them."""

from __future__ import annotations

from typing import NamedTuple

import networkx as nx

from netfold.sim.keys.fields import Placement
from netfold.sim.keys.location import Location
from netfold.topologies.graph import TopologyError, hosts, where
from netfold.topologies.placement import place_workers


class Placed(NamedTuple):
    """What is placed: its name in errors, and the keys of its number and its hosts."""

    noun: str
    count_key: str
    placement_key: str
    remedy: str = ""  # besides fewer of them and a larger topology


WORKERS = Placed("worker", "workers.count", "workers.placement")


class HostAllocation:
    """The hosts of a variant, and the jobs that occupy them."""

    def __init__(self, graph: nx.Graph) -> None:
        self._graph = graph
        self._taken: dict[str, tuple[str, Location]] = {}  # by host: what it runs, and of which job

    def place(
        self, count: int, placement: Placement, location: Location, what: Placed = WORKERS
    ) -> tuple[str, ...]:
        """Place a job: the host of each worker, in rank order; policies use free hosts.

        Raises
        ------
        ScenarioError
            Too few hosts, or a host that is unknown, named twice, or used by an earlier job.
        """
        chosen = self._chosen(count, placement, location, what)
        for host in chosen:
            if host in self._taken:
                noun, owner = self._taken[host]
                of_owner = "" if owner == location else f" of {owner.name_in_errors}"
                raise location.job_error(
                    what.placement_key,
                    f"host {host!r} runs a {noun}{of_owner}",
                    f"use another host; free: {self._free_names()}",
                )
        self._taken.update(dict.fromkeys(chosen, (what.noun, location)))
        return tuple(chosen)

    def release(self, location: Location) -> None:
        """Free the hosts of a job."""
        self._taken = {host: one for host, one in self._taken.items() if one[1] != location}

    def _chosen(self, count: int, placement: Placement, location: Location, what: Placed) -> list[str]:
        is_named, seed = not isinstance(placement, str), location.scenario.seed
        try:
            if is_named or not self._taken:
                return place_workers(self._graph, count, placement, what.noun, seed)
            order = place_workers(self._graph, len(hosts(self._graph)), placement, seed=seed)
        except TopologyError as error:
            message, hint = split_message_and_hint(self._graph, error)
            is_placement = is_named or count <= len(hosts(self._graph))
            raise location.job_error(
                what.placement_key if is_placement else what.count_key, message, hint
            ) from None
        free = [host for host in order if host not in self._taken]
        if count > len(free):
            others = "earlier jobs" if what is WORKERS else "workers and other servers"
            remedies = [f"at most {len(free)} {what.noun}s"] if free else []
            remedies += ["a larger topology", *([what.remedy] if what.remedy else [])]
            raise location.job_error(
                what.count_key,
                f"cannot place {count} {what.noun}s on the {len(free)} hosts that {others} leave free",
                f"use {' or '.join(remedies)}",
            )
        return free[:count]

    def first_free(self) -> str | None:
        """The first host without a worker or server, in the graph's order."""
        return next(iter(self._free()), None)

    def owner(self, host: str) -> Location | None:
        """The job that runs a worker or server on a host."""
        taken = self._taken.get(host)
        return None if taken is None else taken[1]

    def _free(self) -> list[str]:
        return [host for host in hosts(self._graph) if host not in self._taken]

    def _free_names(self) -> str:
        free = self._free()
        return ", ".join(free[:8]) + (f" and {len(free) - 8} more" if len(free) > 8 else "") or "none"


def split_message_and_hint(graph: nx.Graph, error: TopologyError) -> tuple[str, str]:
    """Message and hint of a topology error, without the topology's name."""
    message, _, hint = str(error).removeprefix(where(graph)).rpartition("; ")
    return message, hint

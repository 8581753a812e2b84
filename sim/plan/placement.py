"""Assigns workers to hosts; each host runs at most one worker."""

from __future__ import annotations

import networkx as nx

from netfold.sim.keys.fields import Placement
from netfold.sim.keys.location import Location
from netfold.topologies.graph import TopologyError, hosts, where
from netfold.topologies.placement import place_workers


class HostAllocation:
    """The hosts of a variant, and the jobs that occupy them."""

    def __init__(self, graph: nx.Graph) -> None:
        self._graph = graph
        self._taken: dict[str, Location] = {}  # by host

    def place(self, count: int, placement: Placement, location: Location) -> tuple[str, ...]:
        """Place a job: the host of each worker, in rank order; pack and spread use free hosts.

        Raises
        ------
        ScenarioError
            Too few hosts, or a host that is unknown, named twice, or used by an earlier job.
        """
        chosen = self._chosen(count, placement, location)
        for host in chosen:
            if host in self._taken:
                owner = self._taken[host].name_in_errors
                raise location.job_error(
                    "workers.placement",
                    f"host {host!r} runs a worker of {owner}",
                    f"use another host; free: {self._free_names()}",
                )
        self._taken.update(dict.fromkeys(chosen, location))
        return tuple(chosen)

    def _chosen(self, count: int, placement: Placement, location: Location) -> list[str]:
        is_named = not isinstance(placement, str)
        try:
            if is_named or not self._taken:
                return place_workers(self._graph, count, placement)
            order = place_workers(self._graph, len(hosts(self._graph)), placement)
        except TopologyError as error:
            message, hint = split_message_and_hint(self._graph, error)
            raise location.job_error(
                f"workers.{'placement' if is_named else 'count'}", message, hint
            ) from None
        free = [host for host in order if host not in self._taken]
        if count > len(free):
            raise location.job_error(
                "workers.count",
                f"cannot place {count} workers on the {len(free)} hosts that earlier jobs leave free",
                f"use at most {len(free)} workers or a larger topology" if free else "use a larger topology",
            )
        return free[:count]

    def first_free(self) -> str | None:
        """The first host without a worker, in the graph's order."""
        return next(iter(self._free()), None)

    def owner(self, host: str) -> Location | None:
        """The job that runs a worker on a host."""
        return self._taken.get(host)

    def _free(self) -> list[str]:
        return [host for host in hosts(self._graph) if host not in self._taken]

    def _free_names(self) -> str:
        free = self._free()
        return ", ".join(free[:8]) + (f" and {len(free) - 8} more" if len(free) > 8 else "") or "none"


def split_message_and_hint(graph: nx.Graph, error: TopologyError) -> tuple[str, str]:
    """Message and hint of a topology error, without the topology's name."""
    message, _, hint = str(error).removeprefix(where(graph)).rpartition("; ")
    return message, hint

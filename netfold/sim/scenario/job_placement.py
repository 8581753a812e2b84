"""Hosts and slots for jobs that come and go: each is placed when it is admitted, as jobs of a plan are.

A job that ends gives back its hosts and its slots. A program whose slots are divided among jobs (SwitchML: a
contiguous range each, by the control plane) has no room when no range is free; one whose entries all jobs
share (ATP: by hash, the first packet claims an entry) has room for any job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from netfold.errors import ScenarioError
from netfold.sim.collectives.collective import CollectiveSection, Site
from netfold.sim.keys import Location
from netfold.topologies.graph import hosts

if TYPE_CHECKING:
    from netfold.sim.plan.plan import JobPlan
    from netfold.sim.scenario.variant_keys import JobSection


Make = Callable[[int, tuple[str, ...], Site, CollectiveSection], "JobPlan"]  # a job on its hosts


class JobPlacer:
    """Places jobs on what is free; `make` makes the plan of a job, by its number, on its hosts."""

    def __init__(self, site: Site, wanted: Sequence[tuple[JobSection, Location]], make: Make) -> None:
        self._site, self._wanted, self._make = site, wanted, make
        self._links_count: int | None = None  # None: jobs may still add links

    def alone(self) -> list[tuple[JobPlan, JobPlan | None]]:
        """Each job on the empty network, and with its fallback if it has one.

        The site's network then has all links that any of them may need.

        Raises
        ------
        ScenarioError
            A job does not fit on the empty network.
        """
        pairs = []
        for index, (section, _) in enumerate(self._wanted):
            fallback = section.fallback
            first = self._place_on(index, section.collective)
            self.release(index)
            second = None
            if fallback is not None:
                second = self._place_on(index, fallback)
                self.release(index)
            pairs.append((first, second))
        self._site.add_links()
        return pairs

    def begin(self) -> JobPlacer:
        """Forget all jobs: the beginning of a run."""
        self._links_count = len(self._site.network.link_names)
        for index in range(len(self._wanted)):
            self.release(index)
        return self

    def place(self, index: int) -> tuple[JobPlan, bool] | None:
        """A job on free hosts and slots; None if there are too few now."""
        section, _ = self._wanted[index]
        collectives = [section.collective, *([section.fallback] if section.fallback is not None else [])]
        for number, collective in enumerate(collectives):
            network = self._site.network
            try:
                job = self._place_on(index, collective)
            except ScenarioError:
                self.release(index)
                self._site.network = network
                continue
            if len(self._site.network.link_names) == self._links_count:
                return job, number > 0
            self.release(index)
            self._site.network = network
        return None

    def release(self, index: int) -> None:
        """Take back what a job has."""
        self.release_hosts(index)
        self._site.release(self._wanted[index][1])

    def release_hosts(self, index: int) -> None:
        self._site.occupied.release(self._wanted[index][1])

    def _place_on(self, index: int, collective: CollectiveSection) -> JobPlan:
        section, location = self._wanted[index]
        names = self._site.occupied.place(section.workers.count, section.workers.placement, location)
        return self._make(index, names, self._site, collective)

    def room(self, jobs: Sequence[JobPlan]) -> dict[int, int]:
        """Slots by switch that are enough for all jobs that run at a time, wherever they are placed.

        The lowest free range that fits is taken. If no more than M slots are used at a time, in ranges of
        a to b slots, no slot beyond M · (1 + ⌈log2(b / a)⌉) is ever used (Robson, JACM 1974, up to rounding).
        """
        sizes = [sum(tree.slots_count for tree in job.collective.aggregations) for job in jobs]
        ranges = [tree.slots_count for job in jobs for tree in job.collective.aggregations]
        if not ranges:
            return {}
        at_once = max(1, len(hosts(self._site.graph)) // min(len(job.hosts) for job in jobs))
        most = sum(sorted(sizes, reverse=True)[:at_once])
        spread = (max(ranges) + min(ranges) - 1) // min(ranges)
        room = min(sum(sizes), most * (1 + (spread - 1).bit_length()))
        nodes = self._site.network.nodes
        return {nodes.index(name): room for name in self._site.profiles}

"""Samples of the network while processes wait for it, close together at first and then ever wider apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from netfold.sim.engine.engine import Engine
from netfold.sim.engine.observe.samples import LINKS_MAX, OUTSTANDING, STATES, Samples, Seen, look
from netfold.units import PS_PER_US

LEAST_PS = PS_PER_US
OF_PERIOD = 16  # a sample is this part of the time for which processes have waited …
OF_EMPTY = 4  # … and of the time for which hosts merged and the network was empty, if that is less …
OF_RUN = 4096  # … and at least this part of all such time, so that their number stays small
HOSTS_EVERY = 8  # samples: hosts on links are looked for
HOSTS_MAX = 2**24  # marks of hosts on links, in bytes; larger networks go without


class Sampler:
    """Takes samples between runs of an engine's loop. It reads the engine and changes nothing.

    A period begins when some process waits for the network and none did before, and ends when none does.
    Nothing happens between two events, so a sample that would end between them ends at the later one. While
    hosts merge and no packet is on its way, samples are apart from those before and after.
    """

    def __init__(self, engine: Engine, jobs_count: int) -> None:
        self._engine, self._jobs_count = engine, jobs_count
        self._owners: list[int] = []  # by number of the engine's job
        links_count, nodes_count = engine.links_count, len(engine.network.nodes)
        kept = min(links_count, LINKS_MAX)
        self._seen = Seen(
            before_ps=np.zeros(links_count, np.int64),
            busy_ps=np.zeros(links_count, np.int64),
            links=np.full(kept, -1, np.int32),
            links_busy_ps=np.zeros(kept, np.int64),
            waiting=np.zeros((jobs_count, STATES), np.int64),
            owners=np.zeros(0, np.int64),
            live=np.zeros((1, 1), np.uint8),
            hosts=np.zeros((links_count, nodes_count * (links_count * nodes_count <= HOSTS_MAX)), np.uint8),
        )
        self._is_open = False
        self._began_ps = self._last_ps = 0
        # The length of the last sample in which hosts did nothing but merge.
        self._empty_ps: int | None = None
        self._before_ps = 0  # length of all periods before this one
        self._state = np.zeros((jobs_count, STATES)), 0, 0  # at the last look; signature; packets
        self._spans: list[tuple[int, int, bool, bool]] = []
        self._links: list[NDArray[np.int32]] = []
        self._busy: list[NDArray[np.int64]] = []
        self._waiting: list[NDArray[np.float64]] = []

    def add_job(self, owner: int) -> None:
        """The engine has one more job; it is part of the variant's job `owner`."""
        self._owners.append(owner)

    def open(self) -> None:
        """A process waits from now on."""
        if not self._is_open:
            self._is_open = True
            self._began_ps = self._last_ps = self._engine.now_ps
            self._look()

    def close(self) -> None:
        """No process waits any more."""
        if self._is_open:
            self.take()
            self._is_open = False
            self._before_ps += self._last_ps - self._began_ps

    def stop_ps(self, until_ps: int) -> int:
        """The time to run the engine to, at most `until_ps`."""
        if not self._is_open:
            return until_ps
        following = self._engine.next_event_ps()
        following_ps = until_ps if following is None else following
        if self._is_merging() and following_ps >= self._last_ps + self._least_ps():
            return min(until_ps, following_ps)
        return min(until_ps, max(self._due_ps(), following_ps))

    def is_due(self) -> bool:
        """Whether to take a sample now."""
        if not self._is_open:
            return False
        least_ps = self._least_ps() if self._is_merging() else self._length_ps()
        return self._engine.now_ps >= self._last_ps + least_ps

    def _due_ps(self) -> int:
        return self._last_ps + self._length_ps()

    def _length_ps(self) -> int:
        """How long the next sample is at least."""
        length_ps = (self._last_ps - self._began_ps) // OF_PERIOD
        if self._empty_ps is not None:
            length_ps = min(length_ps, self._empty_ps // OF_EMPTY)
        return max(self._least_ps(), length_ps)

    def _least_ps(self) -> int:
        return max(LEAST_PS, (self._before_ps + self._last_ps - self._began_ps) // OF_RUN)

    def _is_merging(self) -> bool:
        """Whether no packet was on its way at the last look, and no sender waited for any."""
        waiting, _, in_flight = self._state
        return in_flight == 0 and not waiting[:, OUTSTANDING].any()

    def take(self) -> None:
        """Add the sample that ends now."""
        now_ps = self._engine.now_ps
        if now_ps <= self._last_ps:
            return
        waiting, signature, in_flight = self._state
        was_merging = self._is_merging()
        is_jump = now_ps > self._due_ps()  # nothing happened until now
        self._look()
        after, signature_after, in_flight_after = self._state
        ends = [waiting] if is_jump else [waiting, after]
        weights = np.array([one[:, OUTSTANDING] > 0 for one in ends], np.float64)  # (ends, jobs)
        total = np.maximum(weights.sum(0), 1)
        mean = sum(one * weight[:, None] for one, weight in zip(ends, weights, strict=True)) / total[:, None]
        is_empty = in_flight == 0 and (is_jump or in_flight_after == 0)
        if was_merging and is_empty:
            self._empty_ps = now_ps - self._last_ps
        end_ps = self._left_empty_ps(now_ps) if self._is_merging() and not was_merging else now_ps
        self._add((self._last_ps, end_ps, signature == signature_after, is_empty), mean)
        if end_ps < now_ps:
            self._seen.links[:], self._seen.links_busy_ps[:] = -1, 0
            self._add((end_ps, now_ps, True, True), after)
        self._last_ps = now_ps

    def _add(self, span: tuple[int, int, bool, bool], waiting: NDArray[np.float64]) -> None:
        self._spans.append(span)
        self._links.append(self._seen.links.copy())
        self._busy.append(self._seen.links_busy_ps.copy())
        self._waiting.append(waiting)

    def _left_empty_ps(self, now_ps: int) -> int:
        """When the last packet arrived, if no link has any now."""
        left_ps, delay_ps = self._engine.world.links["free_at_ps"], self._engine.network.delay_ps
        is_used = left_ps > 0
        last_ps = int((left_ps + np.tile(delay_ps, 2))[is_used].max(initial=0))  # acknowledgements' lanes too
        return last_ps if self._last_ps < last_ps < now_ps else now_ps

    def _look(self) -> None:
        world, engine = self._engine.world, self._engine
        units = max(world.windows.shape[1], world.places.shape[1], 64)
        shape = len(self._owners) + 1 + world.flows.size // units, units
        if self._seen.live.shape != shape:
            owners = np.array(self._owners, np.int64)
            self._seen = self._seen._replace(owners=owners, live=np.zeros(shape, np.uint8))
        with_hosts = len(self._spans) % HOSTS_EVERY == 0
        in_flight, signature = look(world, self._seen, engine.now_ps - self._last_ps, with_hosts)
        self._state = self._seen.waiting.astype(np.float64), signature, in_flight

    def samples(self) -> Samples:
        """All samples so far."""
        links_count = self._engine.links_count
        if not self._spans:
            return Samples.none(links_count, self._jobs_count)
        spans = np.array(self._spans, np.int64)
        return Samples(
            spans[:, 0],
            spans[:, 1],
            np.stack(self._links),
            np.stack(self._busy),
            np.stack(self._waiting),
            spans[:, 2].astype(np.bool_),
            spans[:, 3].astype(np.bool_),
            self._seen.hosts.sum(1, dtype=np.int32),
        )

"""What all collectives between hosts have in common: their keys, how these are resolved, and closed forms.

Such a collective is a schedule: which worker sends which chunk to whom, and where chunks are merged.
`Schedule` says so in numbers; `host_messages.py` carries it out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from netfold.homomorphic.codec import MERGEABLE, Carrier, Merge
from netfold.homomorphic.kernels import purposes
from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.sim.collectives.codec_fit import check_workers, fitted
from netfold.sim.collectives.spec import CollectiveSection, JobContext, Resolved
from netfold.sim.collectives.timeouts import check_timeout
from netfold.sim.engine.interface import BACKOFF_MAX, Frame
from netfold.sim.keys.fields import Count, Time
from netfold.sim.keys.frame import HostFrame
from netfold.sim.plan.collective import CollectivePlan
from netfold.sim.plan.frames import frame_of
from netfold.sim.plan.idle_network import (
    Pace,
    Traffic,
    Window,
    WorkerPath,
    busiest_link,
    full_window_trip_ps,
    one_way_ps,
    words_per_s,
)
from netfold.sim.units import PS_PER_S, TIME
from netfold.sim.workload.device import Device, memory_bps
from netfold.topologies.routing import Network, path

TIMEOUT_PS = TIME.parse("1ms")
_HELD_BYTES = 12  # per element: chunks under way and joined, of all workers together
_SAMPLE_BYTES = 10**9


class HostSection(CollectiveSection):
    """Keys of every collective between hosts: how its messages are carried."""

    recorded_always: ClassVar = ("frame", "window")

    kind: str
    frame: HostFrame = "roce-1024"
    """Packet format: protocol and payload bytes, or one of your own: {words: 256, overhead: 82B}."""
    window: Count = 512
    """Packets a worker may have outstanding."""
    timeout: Time | None = None
    """Wait for an acknowledgement before packets are sent again; by default 1ms, or twice the round trip of a
    full window where that is longer."""
    ack_every: Count = 16
    """Packets acknowledged at once."""


@dataclass(frozen=True, kw_only=True)
class HostPlan(CollectivePlan):
    """A collective over reliable messages between hosts."""

    ack_every: int


class Steps(NamedTuple):
    """A schedule for some number of workers, in numbers."""

    pairs: Sequence[tuple[int, int]]  # workers that send, and whom to, at the same time
    hops: int  # chunks sent one after the other
    chunks: int  # that the words are cut into
    merges: int  # hops at which a chunk is merged


@dataclass(frozen=True)
class Schedule:
    """A collective between hosts, as far as a plan has to know it."""

    kind: str
    name_in_errors: str  # in errors: "a ring"
    refusal: str  # what to do where a codec's messages cannot be merged so
    steps: Callable[[int], Steps]  # for a number of workers
    merges: frozenset[Merge] = MERGEABLE

    def resolve(self, section: HostSection, job: JobContext) -> Resolved:
        """The plan of a job's collective.

        Raises
        ------
        ScenarioError
            Messages that cannot be merged, an index that does not count so many workers, a window that is
            never acknowledged, a timeout that is too short.
        """
        self._check(section, job)
        network, frame = job.site.network, frame_of(section.frame)
        traffic = self.traffic(network, job.nodes, job.location.scenario.seed, job.index)
        trip_ps = full_window_trip_ps(network, traffic, Window(frame, section.window, frame.ack_bytes))
        timeout_ps = max(TIMEOUT_PS, 2 * trip_ps) if section.timeout is None else section.timeout
        check_timeout(job.location, "timeout", timeout_ps, trip_ps, "window")
        plan = HostPlan(
            kind=self.kind,
            frame=frame,
            window=section.window,
            timeout_ps=timeout_ps,
            timeout_max_ps=timeout_ps << BACKOFF_MAX,
            is_timeout_default=section.timeout is None,
            held_bytes=_HELD_BYTES,
            settled={"timeout": TIME.format(timeout_ps)},
            ack_every=section.ack_every,
        )
        carrier = self._carrier(network, traffic, frame, job.device, len(job.hosts))
        return Resolved(plan, fitted(job.codec, carrier))

    def _check(self, section: HostSection, job: JobContext) -> None:
        """Check what needs no network."""
        location, codec = job.location, job.codec
        if refused := sorted(merge.value for merge in codec.merges - self.merges):
            needs = f"codec {codec.kind!r} needs {', '.join(refused)}, which {self.name_in_errors} cannot do"
            raise location.job_error("codec", needs, self.refusal)
        check_workers(location, codec, len(job.hosts), "wrap")
        if section.window < section.ack_every:
            raise location.job_error(
                "collective.window",
                f"a window of {section.window} packets is smaller than ack_every, {section.ack_every}: "
                "it would be full before there is enough to acknowledge",
                f"use at least {section.ack_every}",
            )

    def traffic(self, network: Network, nodes: Sequence[int], seed: int, job: int) -> Traffic:
        """Ways of what workers send at the same time; acknowledgements come back and are in nobody's way."""
        paths = []
        for sender, receiver in self.steps(len(nodes)).pairs:
            source, target, route = nodes[sender], nodes[receiver], host_route(seed, job, sender)
            there, back = path(network, source, target, route), path(network, target, source, route)
            paths.append(WorkerPath(tuple(there), (), tuple(back)))
        return Traffic(tuple(paths), Counter(link for worker_path in paths for link in worker_path.there))

    def pace(self, network: Network, nodes: Sequence[int], seed: int, job: int, frame: Frame) -> Pace:
        """Its closed form for dense words: hops one after the other, each with one chunk of the words."""
        steps, traffic = self.steps(len(nodes)), self.traffic(network, nodes, seed, job)
        busiest = busiest_link(network, traffic.load)
        packet_bytes = frame.wire_bytes(frame.elements, first=False, last=False)
        on_the_wire = words_per_s(frame, busiest.rate_bps / busiest.streams)
        latency_ps = steps.hops * one_way_ps(network, traffic, packet_bytes)
        return Pace(on_the_wire * steps.chunks / steps.hops, latency_ps, busiest)

    def _carrier(
        self, network: Network, traffic: Traffic, frame: Frame, device: Device, workers: int
    ) -> Carrier:
        """What codecs that choose by the network are told of it."""
        _, hops, chunks, merges = self.steps(workers)
        packet_bytes = frame.wire_bytes(frame.elements, first=False, last=False)
        links = [(link, count) for link, count in traffic.load.items() if count]
        rates_bps = (int(network.rate_bps[link]) / count for link, count in links)
        rate_bps = min(rates_bps, default=float(PS_PER_S))
        header_bytes = packet_bytes - 4 * frame.elements  # the last packet is no longer than it must be
        packet_ps = 8 * packet_bytes * PS_PER_S / rate_bps
        merge_ps = device.work_ps(2 * _SAMPLE_BYTES, _SAMPLE_BYTES) / _SAMPLE_BYTES * 4 * frame.elements
        round_ps = hops * packet_ps + merges * merge_ps  # of a packet of every chunk
        return HostCarrier(
            latency_ps=max(1, hops * one_way_ps(network, traffic, header_bytes)),
            rate_bps=max(1, round(32 * chunks * frame.elements / max(1.0, round_ps) * PS_PER_S)),
            memory_bps=memory_bps(device),
        )


@dataclass(frozen=True, kw_only=True)
class HostCarrier(Carrier):
    """Each message of an operation waits for the one before it."""

    def plain_ps(self, messages: Sequence[int]) -> int:
        """Time of some messages, by their words."""
        return sum(self.latency_ps + self.words_ps(words) for words in messages if words)


def host_route(seed: int, job: int, worker: int) -> int:
    """What picks the path of a worker's messages among equal ones."""
    return mix_plain(seed, purposes.RING_ROUTE, job, worker) >> 33

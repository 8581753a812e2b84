"""What may shorten a step: changes of a scenario, and what each of them is worth a try for.

A remedy looks at a job, as it is written and as it is resolved, and proposes values of keys. Only a remedy of
which some cause is on the critical path is tried. What it gains is not estimated here: `explain.py` simulates
it, and what a scenario cannot have is refused there in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from netfold.homomorphic.codecs import codec_kinds
from netfold.sim.checks.bottleneck import BottleneckCause as Cause
from netfold.sim.collectives.collective import collectives
from netfold.sim.plan.plan import JobPlan, frames
from netfold.sim.scenario.network_keys import TopologySection
from netfold.sim.scenario.variant_keys import JobSections
from netfold.sim.workload.fusion import BySize, OneBucket
from netfold.sim.workload.hardware import HARDWARE
from netfold.sim.workload.layers import FLOAT_BYTES
from netfold.switch.fit import can_run
from netfold.switch.profiles import PROFILES, Profile
from netfold.topologies.network import Network
from netfold.topologies.placement import POLICIES as PLACEMENTS
from netfold.topologies.routing import POLICIES as ROUTINGS
from netfold.units import RATE, SIZE, TIME

COMPUTE = "compute"
"""The cause of time in which nothing is aggregated."""
_CARRIED = frozenset({Cause.LINK, Cause.LOOPBACK, Cause.HOST})
_HELD = frozenset({Cause.WINDOW, Cause.LATENCY, Cause.TIMER})
_ALTERNATED = frozenset({COMPUTE, Cause.DEVICE, Cause.MERGING, Cause.STRAGGLER, *_CARRIED, *_HELD})

Change = Mapping[str, Any]
"""Values by path, as `--set` takes them."""


class Price(StrEnum):
    """What a change costs besides time; advice is ranked in this order."""

    SETTING = "a setting"
    SUMS = "changes the sums"
    HARDWARE = "needs other hardware"


@dataclass(frozen=True)
class Case:
    """A job that is to be faster."""

    sections: JobSections
    """Its keys, as they are written."""
    topology: TopologySection
    routing: str
    plan: JobPlan
    network: Network
    parts: Sequence[Mapping[str, Any]]
    """The parts of its aggregation time, the largest first."""

    def keys(self, *names: str) -> list[str]:
        # Those of the names that its collective has as keys.
        return [name for name in names if hasattr(self.sections.collective, name)]

    @property
    def has_ways(self) -> bool:
        # Whether hosts are on several switches, so that it matters where workers are.
        return int((~self.network.is_host).sum()) > 1


@dataclass(frozen=True)
class Remedy:
    """A kind of change."""

    name: str
    """What it does, as advice says it."""
    causes: frozenset[str]
    """It is tried if a job waits for one of them."""
    changes: Callable[[Case], Iterator[Change]]
    """The changes to try, the smaller before the larger."""
    price: Price = Price.SETTING


def _more_in_flight(case: Case) -> Iterator[Change]:
    for key in case.keys("slots", "window"):
        for factor in (2, 4):
            yield {f"collective.{key}": factor * case.plan.collective.sender.window}


def _less_in_flight(case: Case) -> Iterator[Change]:
    for key in case.keys("slots", "window"):
        for divisor in (2, 4):
            yield {f"collective.{key}": max(1, case.plan.collective.sender.window // divisor)}


def _frames(case: Case) -> Iterator[Change]:
    present = case.plan.collective.sender.frame
    for frame in frames().values():
        if case.keys("frame") and frame.name != present.name:
            yield {"collective.frame": frame.name}


def _chunks(case: Case) -> Iterator[Change]:
    if not case.keys("chunk"):
        return
    whole_bytes = FLOAT_BYTES * case.plan.workload.elements // len(case.plan.hosts)
    present = getattr(case.sections.collective, "chunk", None)
    sizes = (present // 4, present // 16, 4 * present) if present else (whole_bytes // 4, whole_bytes // 16)
    for size_bytes in sizes:
        yield {"collective.chunk": _power_of_two(size_bytes)}


def _power_of_two(size_bytes: int) -> str:
    # The largest that is not above; at least a word.
    return SIZE.format(1 << max(FLOAT_BYTES, size_bytes).bit_length() - 1)


def _paths(case: Case) -> Iterator[Change]:
    values: dict[str, Sequence[Any]] = {
        "aggregators": ("one", "tree", "tor"),
        "tree": ("traffic",),
        "trees": (2, 4),
        "multicast": ("auto",),
        "channels": (2, 4),
        "servers": (2, 4, len(case.plan.hosts)),
        "switch": ("auto",),
    }
    for key in case.keys(*values):
        present = getattr(case.sections.collective, key)
        for value in values[key]:
            if value != present and not (isinstance(value, int) and value < present):
                yield {f"collective.{key}": value}


def _placements(case: Case) -> Iterator[Change]:
    for policy in PLACEMENTS:
        if case.has_ways and policy != case.sections.workers.placement:
            yield {"workers.placement": policy}


def _routings(case: Case) -> Iterator[Change]:
    for kind in ROUTINGS:
        if case.has_ways and kind != case.routing:
            yield {"routing": kind}


def _timeouts(case: Case) -> Iterator[Change]:
    for key in case.keys("timeout"):
        for divisor in (2, 4):
            yield {f"collective.{key}": TIME.format(case.plan.collective.sender.timeout_ps // divisor)}
        if getattr(case.sections.collective, key) != "auto":
            yield {f"collective.{key}": "auto"}


def _overlaps(case: Case) -> Iterator[Change]:
    in_flight = case.plan.overlap.buckets_in_flight
    for count in (4, 16):
        if count > in_flight:
            yield {"overlap.buckets_in_flight": count}
    if case.plan.overlap.network == "in_turn":
        yield {"overlap.network": "shared"}


def _buckets(case: Case) -> Iterator[Change]:
    if len(case.plan.workload.layers) == 1:
        return
    yield {"workload.fusion": {"kind": OneBucket.kind}}
    whole_bytes = FLOAT_BYTES * case.plan.workload.elements
    in_flight = max(4, case.plan.overlap.buckets_in_flight)
    for buckets in (2, 4, 8, 16):
        fusion = {"kind": BySize.kind, "bytes": _power_of_two(whole_bytes // buckets)}
        yield {"workload.fusion": fusion, "overlap.buckets_in_flight": in_flight}


def _collectives(case: Case) -> Iterator[Change]:
    for kind in collectives():
        if kind != case.plan.collective.kind:
            yield {"collective": {"kind": kind}}


def _codecs(case: Case) -> Iterator[Change]:
    for kind in codec_kinds():
        if kind != case.plan.codec.kind:
            yield {"codec": {"kind": kind}}


def _rates(case: Case) -> Iterator[Change]:
    numbers = {name: number for number, name in enumerate(case.network.link_names)}
    for part in case.parts:
        if part["cause"] == Cause.LINK and part["where"] in numbers:
            rate_bps = 2 * int(case.network.rate_bps[numbers[part["where"]]])
            change = {case.topology.key_of_value("rate", rate_bps // 2): RATE.format(rate_bps)}
            present = PROFILES.get(getattr(case.topology, "switch", ""))
            if present is not None and 0 < present.port_rate_bps < rate_bps:
                able = [profile.name for profile in _switches(case) if profile.port_rate_bps >= rate_bps]
                change |= {"topology.switch": able[0]} if able else {}
            yield change


def _switches(case: Case) -> list[Profile]:
    """Real switches that run the job's program, those with slow ports first."""
    aggregation = case.plan.collective.aggregation
    real = sorted(PROFILES.values(), key=lambda profile: profile.port_rate_bps)
    return [
        profile
        for profile in real
        if profile.port_rate_bps and (aggregation is None or can_run(profile, aggregation.program.name))
    ]


def _profiles(case: Case) -> Iterator[Change]:
    for profile in _switches(case):
        if profile.name != getattr(case.topology, "switch", profile.name):
            yield {"topology.switch": profile.name}


def _devices(case: Case) -> Iterator[Change]:
    present = HARDWARE.get(getattr(case.sections.device, "name", None) or "")
    for name, row in HARDWARE.items():
        if present is not None and row.memory.peak > present.memory.peak and row.link:
            yield {"device.name": name}


def _cores(case: Case) -> Iterator[Change]:
    for factor in (2, 4):
        yield {"hosts.cores": factor * (case.sections.hosts.whole().cores or 1)}


REMEDIES = (
    Remedy("more packets in flight", _HELD, _more_in_flight),
    Remedy("fewer packets in flight, which lose less", frozenset({Cause.TIMER}), _less_in_flight),
    Remedy("other packets", _CARRIED | _HELD, _frames),
    Remedy("chunks of another size", _CARRIED | _HELD | {Cause.MERGING, Cause.DEVICE}, _chunks),
    Remedy("other ways, trees or servers", _CARRIED | {Cause.LATENCY, Cause.MERGING}, _paths),
    Remedy("workers on other hosts", frozenset({Cause.LINK, Cause.LATENCY}), _placements),
    Remedy("another choice of paths", frozenset({Cause.LINK, Cause.TIMER}), _routings),
    Remedy("another timeout", frozenset({Cause.TIMER}), _timeouts),
    Remedy("more buckets at a time", _ALTERNATED, _overlaps),
    Remedy("other buckets", _ALTERNATED, _buckets),
    Remedy("another collective", _CARRIED | _HELD | {Cause.MERGING}, _collectives),
    Remedy("another codec", _CARRIED | {Cause.DEVICE, Cause.MERGING}, _codecs),
    Remedy(
        "twice the rate of the links that are the bottleneck", frozenset({Cause.LINK}), _rates, Price.HARDWARE
    ),
    Remedy("another switch", frozenset({Cause.LOOPBACK}), _profiles, Price.HARDWARE),
    Remedy("a faster device", frozenset({COMPUTE, Cause.DEVICE}), _devices, Price.HARDWARE),
    Remedy("more cores for packets", frozenset({Cause.HOST}), _cores, Price.HARDWARE),
)

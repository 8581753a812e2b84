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

from netfold.homomorphic.codec import codec_kinds
from netfold.sim.checks.bottleneck import BottleneckCause as Cause
from netfold.sim.collectives.collective import collectives
from netfold.sim.plan.plan import JobPlan, frames
from netfold.sim.scenario.network_keys import TopologySection
from netfold.sim.scenario.variant_keys import JobSections
from netfold.sim.workload.device_rooflines import HARDWARE
from netfold.sim.workload.fusion import BySize, OneBucket
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

Patch = Mapping[str, Any]
"""Values by path, as `--set` takes them."""


class Price(StrEnum):
    """What a change costs besides time; advice is ranked in this order."""

    SETTING = "a setting"
    HARDWARE = "needs other hardware"
    SUMS = "changes the sums"


@dataclass(frozen=True)
class Subject:
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
    changes: Callable[[Subject], Iterator[Patch]]
    """The changes to try, the smaller before the larger."""
    price: Price = Price.SETTING


def _more_in_flight(subject: Subject) -> Iterator[Patch]:
    for key in subject.keys("slots", "window"):
        for factor in (2, 4):
            yield {f"collective.{key}": factor * subject.plan.collective.sender.window}


def _less_in_flight(subject: Subject) -> Iterator[Patch]:
    for key in subject.keys("slots", "window"):
        for divisor in (2, 4):
            yield {f"collective.{key}": max(1, subject.plan.collective.sender.window // divisor)}


def _frames(subject: Subject) -> Iterator[Patch]:
    present = subject.plan.collective.sender.frame
    for frame in frames().values():
        if subject.keys("frame") and frame.name != present.name:
            yield {"collective.frame": frame.name}


def _chunks(subject: Subject) -> Iterator[Patch]:
    if not subject.keys("chunk"):
        return
    whole_bytes = FLOAT_BYTES * subject.plan.workload.elements // len(subject.plan.hosts)
    present = getattr(subject.sections.collective, "chunk", None)
    sizes = (present // 4, present // 16, 4 * present) if present else (whole_bytes // 4, whole_bytes // 16)
    for size_bytes in sizes:
        yield {"collective.chunk": _power_of_two(size_bytes)}


def _power_of_two(size_bytes: int) -> str:
    # The largest that is not above; at least a word.
    return SIZE.format(1 << max(FLOAT_BYTES, size_bytes).bit_length() - 1)


def _paths(subject: Subject) -> Iterator[Patch]:
    values: dict[str, Sequence[Any]] = {
        "aggregators": ("one", "tree", "tor"),
        "tree": ("traffic",),
        "trees": (2, 4),
        "multicast": ("auto",),
        "channels": (2, 4),
        "servers": (2, 4, len(subject.plan.hosts)),
        "switch": ("auto",),
    }
    for key in subject.keys(*values):
        present = getattr(subject.sections.collective, key)
        for value in values[key]:
            if value != present and not (isinstance(value, int) and value < present):
                yield {f"collective.{key}": value}


def _placements(subject: Subject) -> Iterator[Patch]:
    for policy in PLACEMENTS:
        if subject.has_ways and policy != subject.sections.workers.placement:
            yield {"workers.placement": policy}


def _routings(subject: Subject) -> Iterator[Patch]:
    for kind in ROUTINGS:
        if subject.has_ways and kind != subject.routing:
            yield {"routing": kind}


def _timeouts(subject: Subject) -> Iterator[Patch]:
    for key in subject.keys("timeout"):
        for divisor in (2, 4):
            timeout_ps = subject.plan.collective.sender.timeout_ps // divisor
            digit_ps = 10 ** max(0, len(str(timeout_ps)) - 3)  # three digits are enough
            yield {f"collective.{key}": TIME.format(timeout_ps // digit_ps * digit_ps)}
        if getattr(subject.sections.collective, key) != "auto":
            yield {f"collective.{key}": "auto"}


def _overlaps(subject: Subject) -> Iterator[Patch]:
    in_flight = subject.plan.overlap.buckets_in_flight
    for count in (4, 16):
        if count > in_flight:
            yield {"overlap.buckets_in_flight": count}
    if subject.plan.overlap.network == "in_turn":
        yield {"overlap.network": "shared"}


def _buckets(subject: Subject) -> Iterator[Patch]:
    if len(subject.plan.workload.layers) == 1:
        return
    yield {"workload.fusion": {"kind": OneBucket.kind}}
    whole_bytes = FLOAT_BYTES * subject.plan.workload.elements
    in_flight = max(4, subject.plan.overlap.buckets_in_flight)
    for buckets in (2, 4, 8, 16):
        fusion = {"kind": BySize.kind, "bytes": _power_of_two(whole_bytes // buckets)}
        yield {"workload.fusion": fusion, "overlap.buckets_in_flight": in_flight}


def _collectives(subject: Subject) -> Iterator[Patch]:
    for kind in collectives():
        if kind != subject.plan.collective.kind:
            yield {"collective": {"kind": kind}}


def _codecs(subject: Subject) -> Iterator[Patch]:
    for kind in codec_kinds():
        if kind != subject.plan.codec.kind:
            yield {"codec": {"kind": kind}}


def _rates(subject: Subject) -> Iterator[Patch]:
    numbers = {name: number for number, name in enumerate(subject.network.link_names)}
    for part in subject.parts:
        if part["cause"] == Cause.LINK and part["where"] in numbers:
            rate_bps = 2 * int(subject.network.rate_bps[numbers[part["where"]]])
            key = subject.topology.key_of_value("rate", rate_bps // 2)
            if key == "topology.path":  # the rate is in the file
                continue
            change = {key: RATE.format(rate_bps)}
            present = PROFILES.get(getattr(subject.topology, "switch", ""))
            if present is not None and 0 < present.port_rate_bps < rate_bps:
                able = [profile.name for profile in _switches(subject) if profile.port_rate_bps >= rate_bps]
                change |= {"topology.switch": able[0]} if able else {}
            yield change


def _switches(subject: Subject) -> list[Profile]:
    """Real switches that run the job's program, those with slow ports first."""
    aggregation = subject.plan.collective.aggregation
    real = sorted(PROFILES.values(), key=lambda profile: profile.port_rate_bps)
    return [
        profile
        for profile in real
        if profile.port_rate_bps and (aggregation is None or can_run(profile, aggregation.program.name))
    ]


def _profiles(subject: Subject) -> Iterator[Patch]:
    for profile in _switches(subject):
        if profile.name != getattr(subject.topology, "switch", profile.name):
            yield {"topology.switch": profile.name}


def _devices(subject: Subject) -> Iterator[Patch]:
    present = HARDWARE.get(getattr(subject.sections.device, "name", None) or "")
    for name, row in HARDWARE.items():
        if present is not None and row.memory.peak > present.memory.peak and row.link:
            yield {"device.name": name}


def _speeds(subject: Subject) -> Iterator[Patch]:
    """Half of the times that a device is given; slow and irregular ones like the others."""
    device = subject.sections.device
    times = {key: getattr(device, f"{key}_ps", None) or 0 for key in ("forward", "backward", "optimizer")}
    if device.computes and all(hasattr(device, f"{key}_ps") for key in times):
        yield {f"device.{key}": TIME.format(time_ps // 2) for key, time_ps in times.items() if time_ps > 1}
    for key, value in (("slow", []), ("jitter", None)):
        if getattr(device, key, None):
            yield {f"device.{key}": value}


def _cores(subject: Subject) -> Iterator[Patch]:
    for factor in (2, 4):
        yield {"hosts.cores": factor * (subject.sections.hosts.whole().cores or 1)}


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
    Remedy(
        "faster devices, or more even ones",
        frozenset({COMPUTE, Cause.DEVICE, Cause.STRAGGLER}),
        _speeds,
        Price.HARDWARE,
    ),
    Remedy("more cores for packets", frozenset({Cause.HOST}), _cores, Price.HARDWARE),
)

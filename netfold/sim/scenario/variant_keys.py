"""The keys of a variant and its jobs: workload, codec, collective, arrivals and faults."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Field,
    model_validator,
)

from netfold.errors import OptionError, shown
from netfold.kernels import rng_streams
from netfold.kernels.keyed_random import mix_plain
from netfold.kinds import family, register
from netfold.sim.collectives.collective import CollectiveSection
from netfold.sim.keys import ByKind, CodecOptions, Count, Name, Option, Placement, Section, Time
from netfold.sim.plan.host_profiles import HostProfile
from netfold.sim.plan.plan import Overlap, Reference
from netfold.sim.plan.prices import Prices
from netfold.sim.results.kept_arrays import Kept
from netfold.sim.scenario.faults import AnyFault
from netfold.sim.scenario.network_keys import AnyTopology
from netfold.sim.scenario.profile_keys import SwitchProfile
from netfold.sim.workload.devices import DeviceOption, NoDevice
from netfold.sim.workload.workload_keys import AnyWorkload
from netfold.topologies.routing import ECMP, POLICIES, Policy
from netfold.units import TIME

_BITS = 53
"""Bits of a uniform number."""


@family("arrivals")
class Arrivals(Option, ABC):
    """How the jobs of a template arrive."""

    kind: ClassVar[str]

    @abstractmethod
    def times_ps(self, count: int, seed: int, template: int) -> tuple[int, ...]:
        """(count,) times after the template's `start`, in order, in ps; `template` is its place in `jobs`."""


@register
@dataclass(frozen=True)
class FixedArrivals(Arrivals):
    """Jobs arrive at given times after `start`, one job for each."""

    kind: ClassVar[str] = "fixed"
    at_ps: tuple[Time, ...]
    """Times after `start`, in order; `count` is their number."""

    def __post_init__(self) -> None:
        if not self.at_ps:
            raise OptionError("at", "must have at least one time, found none", "use at: [0us, 100us]")
        for before, after in itertools.pairwise(self.at_ps):
            if after < before:
                raise OptionError(
                    "at", f"times must be in order, found {TIME.format(after)} after {TIME.format(before)}"
                )

    def times_ps(self, count: int, seed: int, template: int) -> tuple[int, ...]:
        return self.at_ps


@register
@dataclass(frozen=True)
class EvenArrivals(Arrivals):
    """The first job arrives at `start`, each other one a gap after the one before it."""

    kind: ClassVar[str] = "even"
    gap_ps: Annotated[Time, Field(gt=0)]
    """Time between two arrivals."""

    def times_ps(self, count: int, seed: int, template: int) -> tuple[int, ...]:
        return tuple(number * self.gap_ps for number in range(count))


@register
@dataclass(frozen=True)
class PoissonArrivals(Arrivals):
    """A Poisson process from `start` on: independent exponential gaps, one also before the first job.

    They are drawn by the scenario's seed and the place of the job in `jobs`: all variants have the same ones.
    """

    kind: ClassVar[str] = "poisson"
    mean_gap_ps: Annotated[Time, Field(gt=0)]
    """Mean time between two arrivals: 1 / rate."""

    def times_ps(self, count: int, seed: int, template: int) -> tuple[int, ...]:
        """Sums of gaps −ln(1 − u) · mean, each rounded to whole ps; u is uniform in [0, 1)."""
        times, now_ps = [], 0
        for number in range(count):
            uniform = int(mix_plain(seed, rng_streams.JOB_ARRIVALS, template, number)) >> (64 - _BITS)
            now_ps += round(-math.log1p(-uniform / 2**_BITS) * self.mean_gap_ps)
            times.append(now_ps)
        return tuple(times)


# The scenario file as pydantic models: every key, its meaning, its default and its range.
#
# Keys are written without units because their values carry one. The attributes hold the base unit: `rate` is
# int bits per second, `delay` int picoseconds, `buffer` int bytes. `resolve.py` makes a plan of them.


JOBS_MAX = 1000
"""The most jobs of a template."""


class Workers(Section):
    """Training ranks and the hosts they run on; a number alone is the count."""

    count: Count
    """Number of workers."""
    placement: Placement = "pack"
    """pack fills racks in order, spread takes racks in turn, random draws hosts by the seed, rails fills one
    rail of a rail-optimized network after the other; or the host names in rank order."""


AnyCollectiveSection = Annotated[CollectiveSection, ByKind()]
if TYPE_CHECKING:
    RoutingKind = str
else:
    RoutingKind = Literal[tuple(POLICIES)]


class JobSections(Section):
    """The sections of a job."""

    workers: Workers
    """Training ranks and where they run."""
    hosts: HostProfile = HostProfile()
    """What their hosts take for packets."""
    workload: AnyWorkload
    """Where gradients come from."""
    device: Annotated[DeviceOption, ByKind()] = NoDevice()
    """How long compute takes."""
    overlap: Overlap = Overlap()
    """What a worker does at the same time."""
    codec: CodecOptions
    """How gradients are encoded."""
    collective: AnyCollectiveSection
    """How workers' messages are aggregated."""
    published: tuple[Reference, ...] = ()
    """Published results to compare with."""
    keep: tuple[Kept, ...] = ()
    """What to keep of every step as arrays in the run folder: gradients of each worker; contributions, what
    each worker put into the sum; totals, what was decoded; weights, before the first step and after each."""


class JobSection(JobSections):
    """One of several jobs on the same network; keys left out have the variant's values."""

    name: Name
    """Name in tables and figures, after the variant's: lower-case letters, digits, '-' and '_'."""
    start: Time = 0
    """When the job starts; of a job with `arrivals`, the time from which they count."""
    count: Annotated[int, Field(ge=1, le=JOBS_MAX)] | None = None
    """How many jobs there are of it, named NAME-1, NAME-2 and so on; 1 by default."""
    arrivals: Annotated[Arrivals, ByKind()] | None = None
    """When they arrive; all at `start` by default."""
    fallback: AnyCollectiveSection | None = None
    """The collective to use if switches have no room when it is its turn; by default it waits for room."""

    @property
    def is_template(self) -> bool:
        # Its jobs have numbers.
        return self.count is not None or self.arrivals is not None

    @model_validator(mode="after")
    def _counted(self) -> JobSection:
        if isinstance(self.arrivals, FixedArrivals):
            if self.count not in (None, len(self.arrivals.at_ps)):
                times = len(self.arrivals.at_ps)
                raise ValueError(f"count is {self.count}, arrivals.at has {times} times\nleave out count")
        elif self.arrivals is not None and self.count is None:
            raise ValueError(f"arrivals of kind {self.arrivals.kind} need a number of jobs\nadd count: 4")
        return self

    def starts_ps(self, seed: int, template: int) -> tuple[int, ...]:
        """Times at which its jobs arrive, in order; `template` is its place in `jobs`."""
        if self.arrivals is None:
            return (self.start,) * (self.count or 1)
        return tuple(
            self.start + arrival_ps for arrival_ps in self.arrivals.times_ps(self.count or 0, seed, template)
        )


_COMMON = tuple(JobSections.model_fields)
JOB_KEYS = (
    *(key for key in JobSection.model_fields if key not in ("name", *_COMMON)),
    *_COMMON,
)  # but its name

_ROUTING = "How packets between hosts choose among paths. " + " ".join(
    f"{policy.kind}: {policy.meaning}." for policy in POLICIES.values()
)


class Routing(Section):
    """How packets between hosts choose among paths; a name alone is the kind."""

    kind: Annotated[RoutingKind, Field(description=_ROUTING)] = ECMP.kind
    gap: Annotated[Time, Field(gt=0)] | None = None
    """Of kind flowlet, the pause after which a flow may take another path; by default 500us, as in CONGA
    (SIGCOMM 2014) and LetFlow (NSDI 2017)."""

    @model_validator(mode="after")
    def _has_flowlets(self) -> Routing:
        if self.gap is not None and not POLICIES[self.kind].gap_ps:
            raise ValueError(f"gap is a key of routing flowlet, not of {self.kind}\nleave gap out")
        return self

    @property
    def policy(self) -> Policy:
        known = POLICIES[self.kind]
        return known if self.gap is None else replace(known, gap_ps=self.gap)


class NetworkSections(Section):
    """The network that jobs run on."""

    topology: AnyTopology
    """Hosts, switches and links."""
    routing: Routing = Routing()
    """How packets between hosts choose among paths: a kind, or a mapping with its keys."""


class Settings(JobSections, NetworkSections):
    """The sections of every variant."""

    faults: tuple[AnyFault, ...] = ()
    """Faults of the network and of workers."""
    jobs: tuple[JobSection, ...] = ()
    """Jobs that share the network, each with a name and the keys it changes; by default there is one job."""
    admission: Literal["reserved", "fifo"] = "reserved"
    """What arriving jobs get. reserved: every job has hosts and slots of its own from beginning to end. fifo:
    a job takes free hosts and slots when it arrives and gives them back when it ends; if there are too few it
    waits, and all later ones behind it."""


class Variant(Settings):
    """One alternative, complete. If it has `jobs`, its own job sections equal those of the first job."""

    name: Name
    """Name in tables and figures: lower-case letters, digits, '-' and '_'."""


Seed = Annotated[int, Field(ge=0, lt=2**63)]


def _require_seeds(value: object) -> object:
    """Refuse what is neither a number nor a list with one message, instead of one for each."""
    listed, least = (value, 0) if isinstance(value, tuple) else ((value,), 1)
    wrong = [seed for seed in listed if type(seed) is not int or not least <= seed < 2**63]
    if not listed or wrong:
        wrong_text = shown(wrong[0] if wrong else value)
        raise ValueError(f"must be a number of repeats or a list of seeds, found {wrong_text}")
    if twice := [seed for seed in listed if listed.count(seed) > 1]:
        raise ValueError(f"lists the seed {twice[0]} twice")
    return value


Seeds = Annotated[Count | tuple[Seed, ...], BeforeValidator(_require_seeds)]
_SEED_SHIFT = 32  # drawn seeds have 32 bits


def each_seed(seed: int, seeds: int | tuple[int, ...]) -> tuple[int, ...]:
    """The seeds of repeats: those listed, or `seed` and others drawn from it."""
    if not isinstance(seeds, int):
        return seeds
    drawn = dict.fromkeys([seed])
    for repeat in itertools.count():
        if len(drawn) == seeds:
            break
        drawn[mix_plain(seed, rng_streams.REPEAT_SEED, repeat) >> _SEED_SHIFT] = None
    return tuple(drawn)


QuestionName = Literal["time_to_target", "step_time", "throughput", "makespan", "score_at_time"]
"""What a run can be asked; `report/answer.py` answers it."""


@dataclass(frozen=True, kw_only=True)
class Header(Option):
    """The keys that all variants share."""

    name: Name
    """Name of the scenario and of its folder of runs: lower-case letters, digits, '-' and '_'; not latest."""
    description: str = ""
    """What the scenario shows, in a sentence or two."""
    seed: Seed = 1
    """Seed of all random draws; the same seed gives the same results."""
    seeds: Seeds = 1
    """How often every variant is run: with the scenario's seed, and others drawn from it; or a list of seeds.
    Results are means, with the least and the greatest; variants whose ranges overlap share their rank."""
    baseline: str | None = None
    """Variant that variants of equal workload are compared with; by default the slowest uncompressed one
    whose hosts add the gradients, else the slowest."""
    question: QuestionName | None = None
    """What the variants are ranked by, and what the answer of a run is about: time_to_target, step_time,
    throughput (elements summed per second), makespan (of jobs that come and go), or score_at_time (what has
    been learned when the first variant ends). By default it follows from what the variants have: jobs that
    come and go, a target, tests on held-out data; else the time of a step."""
    profiles: tuple[SwitchProfile, ...] = ()
    """Custom switch profiles, each a mapping or the path of a YAML file with one."""
    prices: Prices | None = None
    """Prices and powers of the parts of networks, a mapping or the path of a YAML file with one; by default
    those of `netfold/sim/plan/prices.yaml`, with their sources."""

    def __post_init__(self) -> None:
        if self.name == "latest":
            raise OptionError(
                "name", "the name latest is reserved", "it points to the latest run: use another name"
            )

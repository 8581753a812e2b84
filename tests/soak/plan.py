"""Which kinds each number of a seed has, so that all pairs of kinds come up: a covering array.

The plan of a seed is made once in a process, from the schema alone, so every scenario can still be drawn
alone. Each number begins with a pair that came up least often, and every further section takes the kind whose
pairs with those that are chosen came up least. What netfold is known to refuse (`AVOIDED`) is only combined
where a pair that is itself refused has to be drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Codec
from netfold.homomorphic.merge import Merge
from netfold.sim.studies.matrix import rows_of
from tests.soak.language import allowed, alternatives, can_meet, language

PERIOD = 2000  # numbers after which a plan begins anew
WANTED = 6  # of each pair, and some more
LATE = 0.5  # part of a period after which what came up least often begins, long list or not
HARD = 150  # kinds of the one section times kinds of the other
REFUSED = 0.15  # share of scenarios that begin with kinds that netfold refuses together
BROKEN = 0.1  # share of scenarios that break a rule
OTHERS = (1.0, 0.6)  # shares of scenarios with a second and a third job or variant
NEEDED = ("topology", "workload", "codec", "collective")
Kind = tuple[str, str]  # section, kind
Choice = dict[str, str]  # kind by section
SEVERAL = "faults"  # the section of which a scenario may have several kinds
CALM = {SEVERAL: 0.25, "jobs": 0.12}  # shares of scenarios without them, unless they begin with one


class Chosen(NamedTuple):
    """The kinds of a number."""

    first: Choice
    others: tuple[Choice, ...]  # of other jobs or variants
    faults: tuple[str, ...]


@cache
def plan(seed: int) -> tuple[Chosen, ...]:
    """The kinds of every number of a period, by section."""
    return tuple(_Plan(seed).all())


def choice(seed: int, number: int) -> Chosen:
    """The kinds of a number."""
    return plan(seed)[number % PERIOD]


def is_broken(seed: int, number: int) -> bool:
    """Whether a number is to break a rule."""
    return random.Random(f"{seed}/{number}/broken").random() < BROKEN


def of_jobs() -> frozenset[str]:
    """Sections that each job has of its own."""
    (job,) = alternatives({"$ref": "#/$defs/JobSection"})
    return frozenset(section for section in language().kinds if section.split(".")[0] in job["properties"])


class _Plan:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        units = language()
        self.kinds: list[Kind] = [
            (section, kind) for section in sorted(units.kinds) for kind in sorted(units.kinds[section])
        ]
        self.rows = {kind: row for row, kind in enumerate(self.kinds)}
        self.of_section = {
            section: [row for row, kind in enumerate(self.kinds) if kind[0] == section]
            for section in sorted(units.kinds)
        }
        self.ranges = {section: slice(rows[0], rows[-1] + 1) for section, rows in self.of_section.items()}
        self.within = units.within
        self.is_late = False
        self.inside = {
            section: [inner for inner in units.within if section in units.within[inner]]
            for section in units.kinds
        }
        self.own = of_jobs()
        self.meets, self.avoided = self._tables()
        sizes = np.array([len(self.of_section[section]) for section, _ in self.kinds], float)
        self.weights = (sizes[:, None] * sizes[None, :]) ** 2  # pairs of long lists are hard to place
        self.lacks = np.where(self.meets, WANTED + 1 + (self.weights < HARD**2), 0)
        shared = np.array([section not in self.own for section, _ in self.kinds])
        once = shared[:, None] & shared[None, :]  # in a scenario, and not in each of its jobs
        self.weights *= np.where(once, 4, 1)
        self.lacks += np.where(once & self.meets, 3, 0)

    def _tables(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        size = len(self.kinds)
        meets, avoided = np.zeros((size, size), bool), np.zeros((size, size), bool)
        for one, first in enumerate(self.kinds):
            for other, second in enumerate(self.kinds):
                meets[one, other] = first[0] != second[0] and can_meet(first, second)
                avoided[one, other] = meets[one, other] and is_avoided(first, second)
        return meets, avoided

    def all(self) -> list[Chosen]:
        found = [self.next(number) for number in range(PERIOD)]
        self._complete(found)
        return found

    def _complete(self, found: list[Chosen]) -> None:
        """Add a job or a fault to some numbers for each pair that still came up too seldom."""
        counts = np.zeros_like(self.lacks)
        for number, chosen in enumerate(found):
            if not is_broken(self.seed, number):
                counts += self._pairs_of(chosen)
        chance = random.Random(f"{self.seed}/complete")
        numbers = [number for number in range(PERIOD) if not is_broken(self.seed, number)]
        for one, other in np.argwhere(np.triu(self.meets & (counts <= WANTED))).tolist():
            chance.shuffle(numbers)
            for number in numbers:
                if counts[one, other] > WANTED:
                    break
                longer = self._with_pair(found[number], one, other, chance)
                if longer is None:
                    continue
                change = self._pairs_of(longer).astype(int) - self._pairs_of(found[number])
                if not ((change < 0) & (counts <= WANTED + 1)).any():
                    counts += change
                    found[number] = longer

    def _pairs_of(self, chosen: Chosen) -> NDArray[np.bool_]:
        """Which pairs a number has."""
        has = np.zeros_like(self.meets)
        for kinds in (chosen.first, *chosen.others):
            rows = [self.rows[kind] for kind in kinds.items() if kind[0] != SEVERAL]
            rows += [self.rows[SEVERAL, fault] for fault in chosen.faults]
            has[np.ix_(rows, rows)] = True
        return has & self.meets

    def _with_pair(self, chosen: Chosen, one: int, other: int, chance: random.Random) -> Chosen | None:
        """A number with another job or fault that has a pair; None if that does not go with the rest."""
        pair = [self.kinds[one], self.kinds[other]]
        first = [self.rows[kind] for kind in chosen.first.items() if kind[0] != SEVERAL]
        if self._is_refused(first) < self.avoided[one, other] or len(chosen.others) > len(OTHERS):
            return None
        shared = [row for row in first if not self._has_own(self.kinds[row][0], first)]
        faults = [kind for section, kind in pair if section == SEVERAL]
        own = [kind for kind in pair if kind[0] != SEVERAL and self.rows[kind] not in shared]
        if len(own) == 1 and not self._has_own(own[0][0], first) and own[0][0] not in NEEDED:
            return chosen._replace(first={**chosen.first, own[0][0]: own[0][1]})
        if any(not self._has_own(section, first) for section, _ in own):
            return None
        more = Chosen(chosen.first, chosen.others, tuple(dict.fromkeys((*chosen.faults, *faults))))
        if not own:
            return more
        context = _Context(self, np.array([chance.random() for _ in self.kinds]))
        context.is_refused = bool(self.avoided[one, other])
        context.wanted = self._wanted(context.is_refused)
        context.add(shared)
        for kind in own:
            for row in sorted(
                {self.rows[kind], *self._around(kind, context)}, key=lambda row: self.kinds[row][0]
            ):
                if (
                    self.kinds[row][0] in context.had
                    and context.had[self.kinds[row][0]] == self.kinds[row][1]
                ):
                    continue
                if not context.meets[row]:
                    return None
                context.add([row])
        for section in NEEDED:
            self._extend(context, section, chance)
        return more._replace(others=(*more.others, self._names(context.rows)))

    def _around(self, kind: Kind, context: _Context) -> list[int]:
        """The kinds that a kind has to be in, which are not there yet."""
        return [
            self.rows[section, sorted(kinds)[0]]
            for section, kinds in allowed(*kind).items()
            if section != kind[0] and context.had.get(section) not in kinds
        ]

    def next(self, number: int) -> Chosen:
        chance = random.Random(f"{self.seed}/{number}/plan")
        self.is_late = number > LATE * PERIOD
        rows = self._context(chance, [])
        is_refused = self._is_refused(rows)
        faults = [row for row in rows if self.kinds[row][0] == SEVERAL]
        if faults:
            faults += self._more_faults(rows, chance)
        is_counted = not is_broken(self.seed, number)
        if is_counted:
            self._count([*rows, *faults[1:]], is_refused)
        shared = [
            row for row in rows if self.kinds[row][0] not in self.own and self.kinds[row][0][:5] != "jobs."
        ]
        others = []
        for share in OTHERS:
            if chance.random() < share:
                others.append(self._context(chance, shared, is_refused))
                if is_counted:
                    self._count([*others[-1], *faults[1:]], self._is_refused(others[-1]))
        return Chosen(
            self._names(rows), tuple(map(self._names, others)), tuple(self.kinds[row][1] for row in faults)
        )

    def _is_refused(self, rows: list[int]) -> bool:
        """Whether netfold is known to refuse these kinds."""
        return bool(self.avoided[np.ix_(rows, rows)].any())

    def _names(self, rows: list[int]) -> Choice:
        return {self.kinds[row][0]: self.kinds[row][1] for row in rows}

    def _context(
        self, chance: random.Random, shared: list[int], is_beside_refused: bool = False
    ) -> list[int]:
        """The kinds of one job; beside another it has what that shares, and is refused if that is."""
        noise = np.array([chance.random() for _ in self.kinds])
        is_second = bool(shared)
        context = _Context(self, noise)
        context.is_refused = is_beside_refused
        if is_second and is_beside_refused:
            first = [row for row in self._first(noise, True) if self._has_own(self.kinds[row][0], shared)]
            for row in [*shared, *first]:
                context.add([row] if context.meets[row] else [])
        else:
            context.add(shared if is_second else self._first(noise, chance.random() < REFUSED))
        context.is_refused = is_beside_refused or (not is_second and context.has_avoided())
        context.wanted = self._wanted(context.is_refused)
        left_out = {section for section, share in CALM.items() if chance.random() < share}
        sections = sorted(
            self.of_section, key=lambda one: (one not in NEEDED, -len(self.of_section[one]), chance.random())
        )
        for section in sections:
            if section.split(".")[0] in left_out:
                continue
            if not is_second or self._has_own(section, context.rows):
                self._extend(context, section, chance)
        return context.rows

    def _has_own(self, section: str, rows: list[int]) -> bool:
        """Whether a second job has a section of its own."""
        return section in self.own or (
            section.startswith("jobs.") and any(self.kinds[row] == ("admission", "fifo") for row in rows)
        )

    def _more_faults(self, rows: list[int], chance: random.Random) -> list[int]:
        had = [row for row in rows if self.kinds[row][0] != SEVERAL]
        able = [
            row
            for row in self.of_section[SEVERAL]
            if row not in rows
            and not self.avoided[row, had].any()
            and self.lacks[row, had].max(initial=0) > 1
        ]
        able.sort(key=lambda row: (-int(self.lacks[row, had].max(initial=0)), chance.random()))
        return able[: chance.choice([0, 0, 1, 2])]

    def _first(self, noise: NDArray[np.float64], is_refused: bool) -> list[int]:
        """A pair that came up least often, with the sections that it is in."""
        lacks_refused, lacks_other = (
            self.lacks[mask].max(initial=0) for mask in (self.avoided, ~self.avoided)
        )
        is_refused = lacks_refused > 0 and (is_refused or lacks_other <= lacks_refused - 2)
        able = self.avoided if is_refused else ~self.avoided
        weights = 1 if is_refused or self.is_late else self.weights
        worst = (self.lacks * weights + noise[:, None] * noise[None, :]) * able
        one, other = divmod(int(np.argmax(worst)), len(self.kinds))
        rows: list[int] = []
        for row in (one, other):
            for section, kinds in allowed(*self.kinds[row]).items():
                if section == self.kinds[row][0] or any(self.kinds[had][0] == section for had in rows):
                    continue
                limits = allowed(*self.kinds[other if row == one else one]).get(section, kinds)
                rows.append(
                    max((self.rows[section, kind] for kind in kinds & limits), key=lambda row: noise[row])
                )
            rows = [had for had in rows if self.kinds[had][0] != self.kinds[row][0]] + [row]
        return rows

    def _extend(self, context: _Context, section: str, chance: random.Random) -> None:
        """Add the kind of a section, and of the section that it is in, whose pairs came up least."""
        if section in context.had:
            return
        for outer, kinds in self.within.get(section, {}).items():
            if outer not in context.had:
                self._extend(context, outer, chance)
            if context.had.get(outer) not in kinds:
                return
        rows = self.ranges[section]
        able = context.meets[rows] & (context.is_refused | ~context.avoids[rows])
        if not able.any() and section in NEEDED:
            able = context.meets[rows]
        if not able.any():
            return
        scores = np.where(able, context.scores[rows], -1)
        if self.inside[section]:
            # How often a kind is wanted for what is inside of it decides, and not what that would add here.
            shares = (context.wanted[rows] * np.where(scores > 0, 1, 0.3) + 0.01) * able
            best = chance.choices(range(len(able)), shares.tolist())[0]
        else:
            best = int(np.argmax(scores + context.noise[rows]))
        if section in NEEDED or self.inside[section] or scores[best] > 0 or chance.random() < 0.3:
            context.add([rows.start + best])

    def _wanted(self, is_refused: bool) -> NDArray[np.float64]:
        """In how many jobs each kind has to come up at least, for the pairs that it lacks."""
        lacks = np.maximum(self.lacks, 0) * (1 if is_refused else ~self.avoided)
        starts = [rows.start for rows in self.ranges.values()]
        wanted: NDArray[np.float64] = np.add.reduceat(lacks, starts, axis=1).max(axis=1).astype(float)
        for inner in sorted(self.within, key=lambda one: -one.count(".")):
            for outer, kinds in self.within[inner].items():
                if len(kinds) == 1:
                    row = self.rows[outer, next(iter(kinds))]
                    wanted[row] = max(wanted[row], wanted[self.of_section[inner]].sum())
        return wanted

    def _count(self, rows: list[int], is_refused: bool) -> None:
        """Count the pairs; of what netfold refuses, those alone that it is refused for."""
        block = np.ix_(rows, rows)
        self.lacks[block] -= self.avoided[block] if is_refused else self.meets[block]


class _Context:
    """The kinds that a job has so far, and what each other kind would add."""

    def __init__(self, plan: _Plan, noise: NDArray[np.float64]) -> None:
        self.plan, self.noise = plan, noise
        self.rows: list[int] = []
        self.had: Choice = {}
        self.meets = np.ones(len(noise), bool)
        self.avoids = np.zeros(len(noise), bool)
        self.scores = np.zeros(len(noise))
        self.wanted = np.zeros(len(noise))
        self.is_refused = False

    def add(self, rows: list[int]) -> None:
        """Add kinds."""
        for row in rows:
            section, kind = self.plan.kinds[row]
            self.rows.append(row)
            self.had[section] = kind
            self.meets &= self.plan.meets[row]
            self.avoids |= self.plan.avoided[row]
            worth = self.plan.avoided[row] * 1000.0 + 1 if self.is_refused else 1.0
            self.scores += np.maximum(self.plan.lacks[row], 0) * self.plan.weights[row] * worth

    def has_avoided(self) -> bool:
        """Whether netfold is known to refuse these kinds."""
        return bool(self.avoids[self.rows].any())


# What netfold refuses, as far as it is known here; a pair that is wrongly missing costs a refused scenario.
def _codecs(holds: Callable[[Codec], bool]) -> set[str]:
    """Kinds of which a predicate holds, as they are by default or with a setting that they declare."""
    return {row.codec.kind for row in rows_of() if row.codec is not None and holds(row.codec)}


_GATHERED = _codecs(lambda codec: Merge.GATHER in codec.merges)
_HOSTS_ONLY = _codecs(lambda codec: Merge.HOST in codec.merges)
_LOOKING = _codecs(lambda codec: bool(codec.needs))
_PARTIAL = ("fixed_point", "dense", "none")
_OF_WORKERS = ("worker_crash", "worker_pause", "start_skew", "slow_host")
AVOIDED: tuple[Callable[[Choice], bool], ...] = (
    lambda had: (
        had.get("codec") in _GATHERED
        and not {had.get("collective", "all_gather"), had.get("jobs.fallback", "all_gather")}
        <= {"all_gather", "parameter_server"}
    ),
    lambda had: (
        had.get("codec") in _HOSTS_ONLY
        and "in_network"
        in {had.get(key) for key in ("collective", "collective.inner", "collective.outer", "jobs.fallback")}
    ),
    lambda had: (
        had.get("codec", "none") not in _PARTIAL and had.get("collective.program") in ("timed", "atp")
    ),
    lambda had: (
        had.get("faults") in _OF_WORKERS
        and (had.get("admission") == "fifo" or "jobs.arrivals" in had or "jobs.fallback" in had)
    ),
    lambda had: had.get("codec") in _LOOKING and had.get("workload", "training") != "training",
    lambda had: had.get("device") == "measured" and had.get("workload", "training") != "training",
    lambda had: had.get("device") == "trace" and had.get("workload", "synthetic") != "synthetic",
    lambda had: "jobs.arrivals" in had and had.get("admission") == "reserved",
    lambda had: "jobs.fallback" in had and had.get("admission") == "reserved",
    lambda had: (
        had.get("routing") == "dimension_order" and had.get("topology", "torus") not in ("torus", "hypercube")
    ),
    lambda had: (
        had.get("workers.placement") == "rails" and had.get("topology", "rail_optimized") != "rail_optimized"
    ),
)


def is_avoided(first: Kind, second: Kind) -> bool:
    """Whether netfold is known to refuse two kinds together."""
    had: Choice = {}
    for kind in (first, second):
        for section, kinds in allowed(*kind).items():
            if len(kinds) == 1:
                had[section] = next(iter(kinds))
    return any(rule(had) for rule in AVOIDED)

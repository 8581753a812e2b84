"""Scenario number i of a seed: anything that the language has, alone and together.

The kinds come from the plan of the seed, all else from a generator keyed by (seed, number), so each scenario
can be drawn alone. About one in ten breaks a rule on purpose and has to be refused with a message; kinds that
do not go together are refused, too.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.soak.breaks import broken
from tests.soak.hints import FIXES, HINTS
from tests.soak.language import Place, alternatives, root
from tests.soak.plan import SEVERAL, Choice, choice, is_broken
from tests.soak.values import Scene, Section, Values

TRANSFORMS = ["as drawn"] * 6 + ["denormal", "huge", "cancelling", "wide", "zero", "spike"]
NAMES = ("b", "b", "b", "b", "b", "b", "b", "b_2", "second-job")  # of the second job or variant


@dataclass
class Drawn:
    """A scenario, the files beside it, and the transformation of its gradients."""

    scenario: Section
    files: dict[str, bytes] = field(default_factory=dict)
    transform: str = "as drawn"
    broken: str = ""  # the rule that it breaks, in words

    @property
    def faults(self) -> list[Section]:
        """The injected faults, of all variants."""
        variants = self.scenario.get("variants")
        parts = [self.scenario, *(variants if isinstance(variants, list) else [])]
        axis = variants.get("faults", {}) if isinstance(variants, dict) else {}
        values = [*(part.get("faults") for part in parts), *axis.values()]
        return [one for faults in values for one in faults or []]


def draw(seed: int, number: int) -> Drawn:
    """Draw one scenario."""
    drawn = _Drawing(random.Random(f"{seed}/{number}"), choice(seed, number)).all()
    if is_broken(seed, number):
        drawn = replace(drawn, broken=broken(random.Random(f"{seed}/{number}/rule"), drawn.scenario))
    return drawn


class _Drawing:
    """Composes a scenario: what parts have to agree on is drawn first."""

    def __init__(self, chance: random.Random, chosen: Any) -> None:
        self.chance, self.chosen = chance, chosen
        self.first: Choice = {key: kind for key, kind in chosen.first.items() if key != SEVERAL}
        self.scene = Scene(chance, self.first, chosen.faults)
        self.has_jobs = any(key.startswith("jobs.") for key in self.first) or self.scene.maybe(0.15)
        self.others: tuple[Choice, ...] = chosen.others
        planned = [key for kinds in (self.first, *self.others) for key in kinds]
        self.comes = any(key.startswith("jobs.") for key in planned)
        self.are_jobs = bool(self.others) and (self.comes or self.scene.maybe(0.3))
        self.has_jobs |= self.are_jobs
        self.scene.workers = self.scene.one(1, 2, 2, 2, 3, 3, 4, 4, 5)
        if any("hierarchical" in kinds.values() for kinds in (self.first, *self.others)):
            self.scene.workers = self.scene.one(4, 4, 4, 6)
        jobs = 1 + (len(self.others) if self.are_jobs else self.has_jobs)
        most = self.scene.workers * jobs
        most += sum("parameter_server" in one.values() for one in (self.first, *self.others))
        self.names = (self.scene.one(*NAMES), "c", "d")  # of other jobs or variants
        self.scene.hosts = most + self.scene.one(0, 0, 1, 2)
        self.scene.host_names = tuple(f"h{n}" for n in range(self.scene.hosts))
        self.scene.jobs = ("a", *self.names[: jobs - 1]) if self.has_jobs else ()

    def values(self, kinds: Mapping[str, str]) -> Values:
        """Draws with these kinds."""
        self.scene.kinds = kinds
        return Values(self.scene, HINTS, FIXES)

    def all(self) -> Drawn:
        scenario: Section = {"name": "soak"}
        if self.scene.maybe(0.16):
            scenario["profiles"] = self.profiles()
        scenario |= self.settings(self.first)
        if self.comes and scenario.get("admission") is None:
            scenario["admission"] = "fifo"
        if self.has_jobs:
            scenario["jobs"] = self.jobs()
        if self.chosen.faults:
            scenario[SEVERAL] = self.faults()
        if self.others and not self.are_jobs:
            scenario["variants"] = self.variants()
        elif self.scene.maybe(0.2):
            scenario["variants"] = self.grid()
        if self.scene.maybe(0.06):
            scenario["sweep"] = self.sweep()
        if self.scene.maybe(0.03):
            scenario["x-note"] = self.scene.one("mine", {"any": ["thing"]})
        return Drawn(scenario, self.scene.files, self.scene.one(*TRANSFORMS))

    def settings(self, kinds: Mapping[str, str]) -> Section:
        """The keys of the root without lists of parts; the network first, whose names others use."""
        values, found = self.values(kinds), {}
        schema = root()["properties"]
        names = [name for name in schema if name not in PARTS]
        for name in sorted(names, key=lambda one: one != "topology"):
            is_wanted = any(key.split(".")[0] == name for key in kinds)
            if is_wanted or values.is_written(Place(), name, schema[name], name):
                found[name] = values.value(schema[name], name)
        return found

    def profiles(self) -> list[Any]:
        values = self.values({})
        options = alternatives(root()["$defs"]["SwitchProfile"])
        written = values.plain(next(one for one in options if "properties" in one), "profiles")
        self.scene.profiles = ("mine",)
        if self.scene.maybe(0.3):
            from tests.soak.files import switch_profile

            return [switch_profile(self.scene, written)]
        return [written]

    # Jobs.

    def jobs(self) -> list[Section]:
        found = [self.job("a", self.first)]
        for name, kinds in zip(self.scene.jobs[1:], self.others if self.are_jobs else ({},), strict=False):
            job = self.job(name, kinds)
            if self.are_jobs:
                job |= self.own(kinds)
                if self.comes and self.scene.maybe(0.9):
                    job.pop("hosts", None)  # all jobs that come and go have the same
            elif self.scene.maybe(0.4):
                job["workers"] = self.chance.randint(1, self.scene.workers)
            found.append(job)
        if self.scene.maybe(0.1):
            found[-1]["published"] = self.published()
        return found

    def published(self) -> Any:
        return self.values({}).value(root()["properties"]["published"], "published")

    def job(self, name: str, kinds: Mapping[str, str]) -> Section:
        """The keys that only jobs have."""
        section: Section = self.values(kinds).plain({"$ref": "#/$defs/JobSection"} | _job(), "jobs")
        if "arrivals" not in section:
            for key in ("count", "fallback"):
                if f"jobs.{key}" not in kinds:
                    section.pop(key, None)
        elif section.get("arrivals") is None or section["arrivals"]["kind"] == "fixed":
            section.pop("count", None)
        elif self.scene.maybe(0.97):
            section["count"] = self.scene.one(1, 2)
        return {**section, "name": name}

    def own(self, kinds: Mapping[str, str]) -> Section:
        """What a job or variant changes: whole sections."""
        values, schema = self.values(kinds), root()["properties"]
        keys = [key for key in _job()["properties"] if key in schema and key not in ("name", "published")]
        wanted = {key.split(".")[0] for key in kinds}
        return {
            key: values.value(schema[key], key) for key in keys if key in wanted or self.scene.maybe(0.08)
        }

    # Alternatives.

    def variants(self) -> list[Section]:
        """The scenario as it is, and some that differ in much."""
        return [
            {"name": "a"},
            *(self.variant(name, kinds) for name, kinds in zip(self.names, self.others, strict=False)),
        ]

    def variant(self, name: str, kinds: Mapping[str, str]) -> Section:
        """Whole sections that a variant changes."""
        found = {"name": name, **self.own(kinds)}
        shared = [key for key in root()["properties"] if key not in (*PARTS, *_job()["properties"])]
        for key in shared:
            if self.scene.maybe(0.06):
                found[key] = self.values(self.first).value(root()["properties"][key], key)
        if self.scene.maybe(0.06):
            found[SEVERAL] = self.faults()
        if self.scene.maybe(0.06):
            found["published"] = self.published()
        if self.scene.maybe(0.06):
            found["jobs"] = [{"name": "only"}]
        return found

    def grid(self) -> Section:
        """One or two keys with one or two values each."""
        options = alternatives(root()["properties"]["variants"])
        keys = next(list(one["properties"]) for one in options if one.get("type") == "object")
        found: Section = {}
        for key in self.chance.sample(keys, self.scene.one(1, 2)):
            named = self.scene.one(("x",), ("x", "y"), ("x", "y"), ("x", "y"), ("x", "y_2"))
            found[key] = {name: self.part(key) for name in named}
        return found

    def part(self, key: str) -> Any:
        """A value of a key of the root, of any kind."""
        if key == SEVERAL:
            return self.faults()
        if key == "jobs":
            return [{"name": "a"}] if self.scene.maybe(0.5) else []
        kinds = (
            {}
            if self.scene.maybe(0.3)
            else {one: kind for one, kind in self.first.items() if one == "topology"}
        )
        return self.values(kinds).value(root()["properties"][key], key)

    def sweep(self) -> Section:
        """Some options and one key with its values."""
        found: Section = self.values({}).value(root()["properties"]["sweep"], "sweep") or {}
        found.pop("seed", None)
        if self.scene.maybe(0.4):
            found["seed"] = [1, 2]
            found.pop("seeds", None)
        else:
            key, listed = self.scene.one(
                ("workers", [1, 2]), ("topology.rate", ["10Gbps", "100Gbps"]), ("codec.kind", ["none"])
            )
            found[key] = listed
        return found

    def faults(self) -> list[Section]:
        """One of each planned kind, or any."""
        schema = root()["properties"][SEVERAL]["items"]
        kinds = list(self.chosen.faults) or [None]
        if self.scene.maybe(0.1):
            kinds.append(kinds[0])
        return [self.values({SEVERAL: kind} if kind else {}).value(schema, SEVERAL) for kind in kinds]


PARTS = ("name", "profiles", "jobs", SEVERAL, "variants", "sweep")  # composed here


def _job() -> Section:
    (section,) = alternatives({"$ref": "#/$defs/JobSection"})
    return dict(section)

"""The factors of the array, with their values from the registries, and what netfold has to refuse of them.

What is refused is derived from what codecs, collectives, programs and workloads declare. So a combination
that is refused for no declared reason is found, and so is one that is declared to be impossible, and runs.
"""

from __future__ import annotations

import itertools
import json
import random
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_origin

from netfold.homomorphic.codec import Codec
from netfold.homomorphic.merge import COUNTER_BITS, MERGEABLE, WORD_BITS
from netfold.homomorphic.message import StepFact
from netfold.sim.collectives.collective import CollectiveSpec, collectives
from netfold.sim.collectives.hierarchical_switched import CARRIED
from netfold.sim.keys import keys
from netfold.sim.plan.host_profiles import host_profiles
from netfold.sim.plan.plan import Overlap
from netfold.sim.scenario.load import load
from netfold.sim.scenario.network_keys import topology_sections
from netfold.sim.scenario.resolve import resolve
from netfold.sim.studies.matrix import rows_of
from netfold.switch.program import ProgramSpec, runnable
from tests.pairs.array import Combination, Factors
from tests.soak import files
from tests.soak.hints import FIXES, HINTS
from tests.soak.language import Schema, alternatives, kind_of, language, root
from tests.soak.values import Scene, Section, Values

LIKELY = 0.5  # keys that the soak writes less often are left out
BUCKET = "2KB"
MODEL_FILE = "mine.py"
HIDDEN = 100  # units of the model that is trained


@dataclass
class Usual(Scene):
    """Draws what is likely, and of several values the last, which is the largest in most lists."""

    def one(self, *values: Any) -> Any:
        return values[-1]

    def maybe(self, share: float) -> bool:
        return share >= LIKELY


def scene_of(seed: str, workers: int, hosts: int) -> Usual:
    """What the sections of a scenario have to agree on."""
    names = tuple(f"h{number}" for number in range(hosts))
    return Usual(random.Random(seed), {}, workers=workers, hosts=hosts, host_names=names)


def drawn(schema: Schema, path: str, kind: str, scene: Scene) -> Section:
    """A section of a kind; files that it names go to the scene."""
    scene.kinds = {path: kind, "workload.model": "user"}
    section: Section = Values(scene, HINTS, FIXES).value(schema, path)
    return section


def workload(kind: str, scene: Scene) -> Section:
    """A workload of two steps and some thousand elements, in several buckets where it can be cut."""
    schema = root()["properties"]["workload"]
    section = drawn(schema, "workload", kind, scene)
    if MODEL_FILE in scene.files:
        scene.files[MODEL_FILE] = files.MODEL.format(hidden=HIDDEN, norm="").encode()
    (keys,) = (one["properties"] for one in alternatives(schema) if kind_of(one) == kind)
    more: Mapping[str, Any] = {"steps": 2, "bucket": BUCKET}
    return {**section, **{name: value for name, value in more.items() if name in keys}}


def arrivals(kind: str, scene: Scene) -> Section:
    """How jobs come."""
    (job,) = alternatives({"$ref": "#/$defs/JobSection"})
    return drawn(job["properties"]["arrivals"], "jobs.arrivals", kind, scene)


@cache
def facts_of(kind: str) -> frozenset[StepFact]:
    """What a workload of a kind knows of a step."""
    scene = scene_of(kind, workers=2, hosts=2)
    settings = {
        "name": "facts",
        "topology": {"kind": "star", "hosts": 2},
        "workers": 2,
        "workload": workload(kind, scene),
        "codec": {"kind": "none"},
        "collective": {"kind": "ring"},
    }
    with tempfile.TemporaryDirectory() as folder:
        plan = resolve(load(written(Path(folder), settings, scene)))
    found: frozenset[StepFact] = plan.variants[0].jobs[0].workload.facts
    return found


def written(folder: Path, settings: Section, scene: Scene) -> Path:
    """The scenario's file, beside those that it names."""
    for name, content in scene.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    file = folder / "pairs.yaml"
    file.write_text(json.dumps(settings))
    return file


NONE = "none"
LOSSES = {NONE: "", "loss": "2%"}
IN_FLIGHT = 4


class Refusal(NamedTuple):
    """What a refusal has to say: the key that it is about, and words of its message."""

    key: str
    words: tuple[str, ...]


class Space:
    """All factors as they are registered now, and what is refused of them."""

    def __init__(self) -> None:
        programs: dict[str, ProgramSpec | None] = {NONE: None, **runnable()}
        workloads = {kind: facts_of(kind) for kind in sorted(language().kinds["workload"])}
        # By factor and value, what rules read of it.
        self.declared: dict[str, Mapping[str, Any]] = {
            "codec": {row.name: row.codec for row in rows_of() if row.codec is not None},
            "collective": collectives(),
            "program": programs,
            "topology": dict.fromkeys(_kind_of(section) for section in topology_sections()),
            "hosts": host_profiles(),
            "loss": LOSSES,
            "jobs": dict.fromkeys(["one", "two", "coming"]),
            "overlap": overlaps(),
            "workload": workloads,
        }
        self.factors: Factors = {name: list(values) for name, values in self.declared.items()}

    @cached_property
    def meaningless(self) -> set[Combination]:
        """What cannot be written: a program without switches that run one, and switches without a program."""
        return set(self._combinations(("collective", "program"), is_meaningless))

    @cached_property
    def refusals(self) -> dict[Combination, Refusal]:
        """What netfold has to refuse, with the reason; of a pair and of triples that have it, the pair."""
        refusals: dict[Combination, Refusal] = {}
        for names, rule in RULES:  # those of pairs first
            for combination, refusal in self._combinations(names, rule).items():
                if not any(part <= combination for part in (*refusals, *self.meaningless)):
                    refusals[combination] = refusal
        return refusals

    @cached_property
    def stalls(self) -> set[Combination]:
        """What ends in a stall, as declared: programs that do not recover from lost packets."""
        return set(self._combinations(("program", "loss"), is_stalled))

    @property
    def excluded(self) -> set[Combination]:
        """What no row that runs to its end can have."""
        return self.meaningless | self.stalls | self.refusals.keys()

    def _combinations(self, names: tuple[str, ...], rule: Callable[..., Any]) -> dict[Combination, Any]:
        """The combinations of some factors for which a rule returns something."""
        results = {}
        for items in itertools.product(*(self.declared[name].items() for name in names)):
            if result := rule(*(declared for _, declared in items)):
                results[frozenset(zip(names, (value for value, _ in items), strict=True))] = result
        return results


def overlaps() -> dict[str, dict[str, Any]]:
    """One bucket in flight, several, and several with each word that is no default."""
    sections: dict[str, dict[str, Any]] = {"alone": {}, "several": {"buckets_in_flight": IN_FLIGHT}}
    for name, field in keys(Overlap).items():
        annotation: Any = field.annotation
        words = annotation.__args__ if get_origin(annotation) is Literal else ()
        for word in words:
            if word != field.default:
                sections[f"{name}={word}"] = {"buckets_in_flight": IN_FLIGHT, name: word}
    return sections


def _kind_of(section: Any) -> str:
    return str(section.model_fields["kind"].annotation.__args__[0])


def is_of_switches(collective: CollectiveSpec) -> bool:
    """Whether switches alone merge."""
    return "program" in collective.section.model_fields


def has_switches(collective: CollectiveSpec) -> bool:
    """Whether switches can merge in it, or in a part of it."""
    return '"program"' in json.dumps(collective.section.model_json_schema())


def is_meaningless(collective: CollectiveSpec, program: ProgramSpec | None) -> bool:
    """Whether a collective cannot be written with a program, or without one."""
    return is_of_switches(collective) if program is None else not has_switches(collective)


def is_stalled(program: ProgramSpec | None, loss: str) -> bool:
    """Whether a program waits for ever for what was lost."""
    return program is not None and program.needs_lossless and bool(loss)


# Rules: each returns what a refusal says, or None.


def _names(merges: Iterable[Any]) -> tuple[str, ...]:
    return tuple(sorted(merge.value for merge in merges))


def merges_of_collective(codec: Codec, collective: CollectiveSpec) -> Refusal | None:
    """A collective carries the merges that it declares."""
    missing = codec.merges - collective.merges
    words = (*_names(missing), f"collective {collective.kind} cannot carry")
    return Refusal("codec", words) if missing else None


def absence_in_collective(codec: Codec, collective: CollectiveSpec) -> Refusal | None:
    """Some collectives cannot count workers that contribute nothing."""
    is_fine = collective.carries_absence or not codec.may_be_absent
    words = "may have nothing to contribute", f"collective {collective.kind}"
    return None if is_fine else Refusal("codec", words)


def sums_of_some(codec: Codec, program: ProgramSpec | None) -> Refusal | None:
    """A program that may deliver the sum of some workers needs a codec that decodes it."""
    is_fine = program is None or program.is_all_or_nothing or codec.is_linear
    return None if is_fine else Refusal("codec", ("sum of only some workers",))


def absence_in_program(codec: Codec, program: ProgramSpec | None) -> Refusal | None:
    """Some programs cannot count workers that contribute nothing."""
    is_fine = program is None or program.carries_absence or not codec.may_be_absent
    return None if is_fine else Refusal("codec", ("may have nothing to contribute",))


def merges_of_program(codec: Codec, program: ProgramSpec | None) -> Refusal | None:
    """A program does the merges that it declares; one that declares none, all that switches can do."""
    missing = codec.merges - ((program.merges if program else codec.merges) or MERGEABLE)
    return Refusal("codec", _names(missing)) if missing else None


def lanes_of_program(codec: Codec, program: ProgramSpec | None) -> Refusal | None:
    """A program adds lanes of the widths that it declares; adders of words add those of 4 bits."""
    bits = WORD_BITS if codec.lane_bits == COUNTER_BITS else codec.lane_bits
    is_fine = program is None or bits in program.adder_bits
    return None if is_fine else Refusal("codec", (f"lanes of {bits} bits",))


def parts_with_all(collective: CollectiveSpec, program: ProgramSpec | None) -> Refusal | None:
    """A phase in switches, with others after it, has to deliver the sums of all workers."""
    is_fine = program is None or program.is_all_or_nothing or is_of_switches(collective)
    return None if is_fine else Refusal("program", ("sum of only some workers",))


def phases(codec: Codec, collective: CollectiveSpec, program: ProgramSpec | None) -> Refusal | None:
    """What a phase in switches leaves, the next has to be able to merge."""
    if program is None or is_of_switches(collective):
        return None
    if missing := codec.merges - CARRIED:
        return Refusal("codec", (*_names(missing), "a hierarchy with switches cannot carry"))
    words = "may have nothing to contribute", "a hierarchy with switches"
    return Refusal("codec", words) if codec.may_be_absent else None


def facts(codec: Codec, known: frozenset[StepFact]) -> Refusal | None:
    """A codec that looks at steps needs a workload that knows what it reads."""
    missing = codec.needs - known
    return Refusal("codec", tuple(fact.value for fact in missing)) if missing else None


RULES: tuple[tuple[tuple[str, ...], Callable[..., Refusal | None]], ...] = (
    (("codec", "collective"), merges_of_collective),
    (("codec", "collective"), absence_in_collective),
    (("codec", "program"), sums_of_some),
    (("codec", "program"), absence_in_program),
    (("codec", "program"), merges_of_program),
    (("codec", "program"), lanes_of_program),
    (("collective", "program"), parts_with_all),
    (("codec", "workload"), facts),
    (("codec", "collective", "program"), phases),
)

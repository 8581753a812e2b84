"""A row of the array as a scenario: one small network, two to four workers, some thousand elements."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any, NamedTuple

from netfold.homomorphic.codec import Codec
from netfold.kinds import registered
from netfold.sim.collectives.collective import collectives
from netfold.sim.collectives.in_network.in_network_keys import program_choices
from netfold.sim.studies.matrix import rows_of
from netfold.switch.fit import suits
from netfold.switch.profiles import PROFILES
from netfold.topologies.graph import TopologyError
from netfold.topologies.kind import Topology, type_of
from netfold.topologies.topology_files import to_json
from tests.pairs.array import Combination, Row, row_with
from tests.pairs.factors import (
    LOSSES,
    NONE,
    Refusal,
    Space,
    Usual,
    arrivals,
    is_of_switches,
    overlaps,
    scene_of,
    workload,
)
from tests.soak.language import language
from tests.soak.values import Section

TEXTS = {"topohub": {"name": "topozoo/Abilene"}}  # keys that no counting finds
SIDES_MAX = 4  # of a count, which may also be that of all hosts or of half of them


@cache
def small_network(kind: str, hosts: int) -> Mapping[str, Any]:
    """The keys of the network; where it can, it has two or more of everything."""
    topology: Any = registered(Topology)[kind]
    texts = TEXTS.get(kind, {})
    counts = [one for one in fields(topology) if _is_needed(one) and one.name not in texts]
    best: tuple[bool, int] | None = None
    found: Mapping[str, Any] = {}
    for values in itertools.product(*(_values(one, hosts) for one in counts)):
        keys = {**texts, **{one.name: value for one, value in zip(counts, values, strict=True)}}
        try:
            network = topology(**keys)
            nodes = network.size().nodes
        except TopologyError:
            continue
        rank = 1 in values, nodes
        if (best is None or rank < best) and network.facts().hosts >= hosts:
            best, found = rank, keys
    assert best is not None, f"topology {kind}: no small network has {hosts} hosts; name its keys in TEXTS"
    return found


def _is_needed(field: Field[Any]) -> bool:
    return field.default is MISSING and "like" not in field.metadata


def _values(field: Field[Any], hosts: int) -> Iterator[Any]:
    """What a count, or a list of counts, may be."""
    if not type_of(field).startswith("tuple"):
        yield from (*range(1, SIDES_MAX + 1), hosts // 2, hosts)
        return
    for length in (1, 2):
        yield from itertools.product(range(2, SIDES_MAX + 1), repeat=length)


TRIES = 20


class RefusedRow(NamedTuple):
    """A row, and the reasons for which it may be refused: more than one where no row has only the one."""

    row: Row
    reasons: tuple[Refusal, ...]


def refused_row(space: Space, combination: Combination) -> RefusedRow:
    """The row with the fewest other reasons."""
    row = row_with(space.factors, combination, space.excluded, seed=0)
    if row is None:
        # What shares a choice with it is allowed, too: gathering goes with in_network as little as with each
        # program that this has to have.
        others = space.meaningless | {other for other in space.refusals if not other & combination}
        rows = [row_with(space.factors, combination, others, seed) for seed in range(TRIES)]
        row = min((made for made in rows if made is not None), key=lambda made: len(_reasons(space, made)))
    return RefusedRow(row, _reasons(space, row))


def _reasons(space: Space, row: Row) -> tuple[Refusal, ...]:
    return tuple(refusal for choices, refusal in space.refusals.items() if choices <= row.items())


DEVICE = {"kind": "fixed", "forward": "5us", "backward": "20us", "memory_rate": "10Gbps"}
HOSTS = 10  # of two jobs of four workers with a server each
WORKERS = (4, 3, 2)
SLOTS = 4  # of eight parts of two jobs, on the switch that has fewest: 23 operations


class Written(NamedTuple):
    """A scenario and the files beside it."""

    settings: Section
    scene: Usual


def scenario_of(row: Row) -> Written:
    """The scenario; the same for the same row."""
    number = zlib.crc32(repr(sorted(row.items())).encode())  # varies what is no factor
    (codec,) = rows_of([row["codec"]])
    assert codec.codec is not None
    parts = collectives()[row["collective"]].choices().get("", {})
    workers = WORKERS[0] if parts else WORKERS[number % len(WORKERS)]
    scene = scene_of(str(number), workers, HOSTS)
    settings: Section = {
        "name": "pairs",
        "seed": number,
        "topology": _topology(row["topology"], _switch(row["program"], codec.codec, number), scene),
        "workers": workers,
        "hosts": row["hosts"],
        "workload": workload(row["workload"], scene),
        "device": DEVICE,
        "overlap": dict(overlaps()[row["overlap"]]),
        "codec": codec.section,
        "collective": _collective(row["collective"], row["program"], number),
    }
    if rate := LOSSES[row["loss"]]:
        settings["faults"] = [{"kind": "loss", "rate": rate}]
    if row["jobs"] == "two":
        settings["jobs"] = [{"name": "a"}, {"name": "b", "start": "3us"}]
    elif row["jobs"] == "coming":
        kinds = sorted(language().kinds["jobs.arrivals"])
        coming = arrivals(kinds[number % len(kinds)], scene)
        job = {"name": "a", "arrivals": coming, **({} if "at" in coming else {"count": 2})}
        settings |= {"admission": "fifo", "jobs": [job]}
    return Written(settings, scene)


def _switch(program: str, codec: Codec, number: int) -> str:
    """A profile that declares to do what the program and the codec need; another one in every row."""
    if program == NONE:
        return "plain"
    able = [name for name, one in PROFILES.items() if suits(one, program) and codec.merges <= one.merges]
    return able[number % len(able)] if able else "ideal"


def _topology(kind: str, switch: str, scene: Usual) -> Section:
    """The smallest network; what is in a file is of the first kind."""
    if kind in registered(Topology):
        return {"kind": kind, **_plain(small_network(kind, scene.hosts)), "switch": switch}
    first, topology = next(iter(registered(Topology).items()))
    graph = topology(**small_network(first, scene.hosts), switch=switch).graph()
    scene.files["net.json"] = to_json(graph).encode()
    return {"kind": kind, "path": "net.json"}


def _plain(keys: Mapping[str, Any]) -> Section:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in keys.items()}


def _collective(kind: str, program: str, number: int) -> Section:
    """With the keys that it needs; a program runs in one of its parts."""
    keys: Section = dict(collectives()[kind].choices().get("", {}))
    if program == NONE:
        return {"kind": kind, **keys}
    if is_of_switches(collectives()[kind]):
        return {"kind": kind, **program_choices()[program], "slots": SLOTS}
    switches = next(name for name, spec in collectives().items() if is_of_switches(spec))
    parts = [name for name, value in keys.items() if isinstance(value, dict)]
    return {"kind": kind, **keys, parts[number % len(parts)]: _collective(switches, program, number)}

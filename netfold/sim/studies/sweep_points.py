"""The points of a sweep: its grid, and what decides a point's results."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path

from netfold.errors import DataError, MistakesError, NetfoldError, ScenarioError, as_one_error
from netfold.kinds import registered
from netfold.sim.collectives.collective import collectives
from netfold.sim.files import UnreadableError, read_bytes
from netfold.sim.plan.host_profiles import host_profiles
from netfold.sim.run.named_files import input_paths
from netfold.sim.scenario.load import Scenario
from netfold.sim.scenario.resolve import resolve
from netfold.sim.scenario.run_limits import Plan, most_bytes
from netfold.sim.scenario.variant_keys import each_seed
from netfold.sim.scenario.yaml_tree import Node
from netfold.sim.studies.sweep_workers import PointTask, Versions, digest_of
from netfold.sim.workload.user_model import imported_files
from netfold.sim.workload.workload_keys import Training
from netfold.switch.program import programs
from netfold.topologies.kind import Topology

_KNOWN = ("netfold", "builtins", *sys.stdlib_module_names)  # their sources, or versions, are in every digest


def origins_of(plan: Plan, digests: dict[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The registered objects that a plan uses, with the sources of their modules; and what is not known.

    `digests` keeps those of modules from one point to the next.
    """
    known, doubts = dict[str, str](), list[str]()
    modules = {
        module for part in _registered_options(plan) for value in _values(part) for module in _modules(value)
    }
    for module in sorted(modules):
        if module not in digests:
            digests[module] = _source_digest(module)
        known[module] = digests[module]
        if not known[module]:
            doubts.append(f"the source of {module}")
    for variant in plan.scenario.variants:
        for job in variant.jobs or (variant,):
            known[f"hosts {job.hosts.kind}"] = repr(job.hosts.whole())
            if isinstance(job.workload, Training) and job.workload.model.code:
                doubts.append(f"what {job.workload.model.code} reads")
    if not all(job.device.is_reproducible for variant in plan.variants for job in variant.jobs):
        known["machine"] = f"{platform.node()}, {platform.machine()}, {os.cpu_count()} cores"
    return known, tuple(dict.fromkeys(doubts))


def _registered_options(plan: Plan) -> Iterator[object]:
    """The objects of a plan that are found in registries."""
    for variant in plan.scenario.variants:
        yield registered(Topology).get(variant.topology.kind)
        for section in variant.jobs or (variant,):
            yield host_profiles().get(section.hosts.kind)
            yield collectives()[section.collective.kind]
            yield programs().get(getattr(section.collective, "program", ""))
    for job in (job for variant in plan.variants for job in variant.jobs):
        yield from (job.codec, job.device, job.workload)


def _values(value: object) -> Iterator[object]:
    """A value, and those in it: fields of dataclasses, items of lists."""
    yield value
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _values(getattr(value, field.name))
    elif isinstance(value, tuple | list | frozenset):
        for item in value:
            yield from _values(item)


def _modules(value: object) -> Iterator[str]:
    """The modules that define a function, a class or an object's class and what it inherits from."""
    module = getattr(value, "__module__", None)
    if not isinstance(module, str) or module.partition(".")[0] in _KNOWN:
        return
    yield module
    for base in (value if isinstance(value, type) else type(value)).__mro__[1:]:
        if base.__module__.partition(".")[0] not in _KNOWN:
            yield base.__module__


def _source_digest(name: str) -> str:
    """A digest of a module's source and of what it imports from beside it; empty where there is no source."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None or not file.endswith(".py"):
        return ""
    path, digest = Path(file), hashlib.sha256()
    try:
        for source in (path, *sorted(imported_files(path, path.parents[name.count(".")]))):
            digest.update(hashlib.sha256(source.read_bytes()).digest())
    except OSError:
        return ""
    return digest.hexdigest()


# The points of a sweep: each a whole scenario, checked before any of them runs.


FILE_BYTES_MAX = 1 << 30
"""The largest file that is sent to workers."""
_NOT_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")  # no text, or line breaks
_SKIP_HINT = "to leave such points out: `impossible: skip` in the sweep"


@dataclass(frozen=True)
class Point:
    number: int
    """The number of the point, from 1 in the order of the grid."""
    values: tuple[object, ...]
    """A value for each axis, as the file has it."""
    seed: int
    names: tuple[str, ...]
    """The names of its rows: variants, or "variant/job"."""
    digest: str = ""
    """Points of the same digest have the same results, `doubts` aside."""
    doubts: tuple[str, ...] = ()
    """What decides the results and cannot be known, such as "what ./mine.py reads"."""
    task: PointTask | None = None  # None: it cannot run
    error: str = ""  # why it cannot
    bytes: int = 0  # memory that a process takes for it, more rather than less
    weight: float = 0.0  # elements that all workers send, a guess of its cost


def text_of(paths: Sequence[str], values: Sequence[object]) -> str:
    return ", ".join(f"{path}={plain_text(value)}" for path, value in zip(paths, values, strict=True))


def plain_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def seeds_of(scenario: Scenario) -> tuple[int, ...]:
    """The seeds of the repeats: those listed, or the scenario's own and others drawn from it."""
    assert scenario.sweep is not None
    return each_seed(scenario.seed, scenario.sweep.seeds)


def points_of(scenario: Scenario, versions: Versions, keeps_run: bool = False) -> tuple[Point, ...]:
    """All points of a sweep, the last axis first to change, and of each every seed.

    Raises
    ------
    ScenarioError
        All mistakes of all points, each at the line of its value; or points that cannot run, unless the sweep
        says that they are left out; or two points that are the same.
    DataError
        A file that a point names cannot be read.
    """
    assert scenario.sweep is not None
    maker = _Maker(scenario, versions, keeps_run)
    grid = itertools.product(*(axis.values for axis in scenario.sweep.axes))
    seeds = seeds_of(scenario)
    points = [
        maker.point(number, values, seed)
        for number, (values, seed) in enumerate(itertools.product(grid, seeds), 1)
    ]
    maker.raise_any()
    _refuse_same(scenario, points)
    return tuple(points)


class _Maker:
    """Makes points, and collects the mistakes of all."""

    def __init__(self, scenario: Scenario, versions: Versions, keeps_run: bool) -> None:
        assert scenario.sweep is not None
        self._scenario, self._versions, self._keeps_run = scenario, versions, keeps_run
        self._skips = scenario.sweep.skips_impossible
        self._paths = [axis.path for axis in scenario.sweep.axes]
        self._files: dict[str, bytes] = {}
        self._digests: dict[str, str] = {}  # a module's, by its name
        self._wrong: dict[str, ScenarioError] = {}
        self._impossible: dict[str, tuple[ScenarioError, list[str]]] = {}  # each with its points, by its text

    def point(self, number: int, values: Sequence[Node], seed: int) -> Point:
        """A point; one with mistakes has no task."""
        plain = tuple(value.plain for value in values)
        try:
            scenario = self._scenario.point(values, seed)
        except ScenarioError as error:
            self._wrong |= {str(mistake): mistake for mistake in _each(error)}
            return Point(number, plain, seed, ())
        names = tuple(variant.name for variant in scenario.variants)
        try:
            plan = resolve(scenario)
        except ScenarioError as error:
            for reason in _each(error):
                self._impossible.setdefault(str(reason), (reason, []))[1].append(text_of(self._paths, plain))
            return Point(number, plain, seed, names, error=str(error))
        return self._possible(number, plain, seed, plan)

    def _possible(self, number: int, values: tuple[object, ...], seed: int, plan: Plan) -> Point:
        jobs = [job for variant in plan.variants for job in variant.jobs]
        files = {path: self._file(path) for path in sorted(input_paths(plan.scenario))}
        text = resolved_text(plan.scenario)
        known, doubts = origins_of(plan, self._digests)
        return Point(
            number,
            values,
            seed,
            tuple(job.label for job in jobs),
            digest_of(text, files, self._versions, known),
            doubts,
            PointTask(text, files, self._versions, self._keeps_run),
            bytes=most_bytes(plan),
            weight=sum(float(job.steps) * len(job.hosts) * job.workload.elements for job in jobs),
        )

    def _file(self, path: str) -> bytes:
        """A file that a scenario names; read once."""
        if path not in self._files:
            where = Path(self._scenario.file).parent / path
            try:
                self._files[path] = read_bytes(where, FILE_BYTES_MAX)
            except UnreadableError as error:
                hint = error.hint or "put the file back, and run again"
                raise DataError(f"{where}: cannot be read: {error.message}", hint) from None
        return self._files[path]

    def raise_any(self) -> None:
        """Report all mistakes, or else the points that cannot run."""
        if self._wrong:
            raise as_one_error(self._wrong.values())
        if self._impossible and not self._skips:
            raise as_one_error(_naming(reason, where) for reason, where in self._impossible.values())


def _each(error: ScenarioError) -> tuple[ScenarioError, ...]:
    return error.mistakes if isinstance(error, MistakesError) else (error,)


def _naming(error: ScenarioError, where: list[str]) -> ScenarioError:
    named = copy(error)
    more = f" and {len(where) - 1} more" if len(where) > 1 else ""
    named.hint = "\n  ".join(part for part in (error.hint, f"at {where[0]}{more}; {_SKIP_HINT}") if part)
    return named


def _refuse_same(scenario: Scenario, points: Sequence[Point]) -> None:
    """Refuse a grid that has a point twice."""
    assert scenario.sweep is not None
    points_by_digest: dict[str, Point] = {}
    for point in points:
        if point.task is None:
            continue
        if (same := points_by_digest.setdefault(point.digest, point)) is not point:
            raise scenario.sweep.node.error(
                f"points {same.number} and {point.number} are the same scenario",
                "a value is there twice, or --set gives a swept key one value: "
                "use --set sweep.KEY=[…] for a key that is swept",
            )


def resolved_text(scenario: Scenario) -> str:
    """A scenario as JSON, which is YAML: everything merged into its variants, and no files for profiles."""
    content: dict[str, object] = {"name": scenario.name, "seed": scenario.seed}
    if scenario.baseline is not None:
        content["baseline"] = scenario.baseline
    for key in ("profiles", "prices"):
        if (node := scenario.document.children.get(key)) is not None:
            content[key] = node.plain
    content["variants"] = [_plain(tree) for tree in scenario.trees.values()]
    text = json.dumps(content, ensure_ascii=False, sort_keys=True)
    return _NOT_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _plain(tree: Node) -> object:
    plain = tree.plain
    assert isinstance(plain, Mapping)
    return plain


def refuse_absolute(points: Sequence[Point]) -> None:
    for point in points:
        for path in point.task.files if point.task else ():
            if Path(path).is_absolute():
                raise NetfoldError(
                    f"{path}: workers on other machines do not have this file",
                    "name it by a path relative to the scenario, and it is sent to them",
                )


def swept(points: Sequence[Point]) -> str:
    """How many points a sweep has, to follow what is said of its scenario; empty without points."""
    skipped = sum(point.task is None for point in points)
    left_out = f", of which {skipped} cannot run and are left out" if skipped else ""
    return f"; {len(points)} points{left_out}" if points else ""

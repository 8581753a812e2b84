"""Loads a scenario file: merges and validates its variants.

`--set PATH=VALUE` changes all merged variants, so that the command line wins over the whole file;
`--set variants.NAME.PATH=VALUE` changes one. Later changes win over earlier ones.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from netfold.errors import (
    MissingKeyError,
    Mistakes,
    NetfoldError,
    ScenarioError,
    as_one_error,
    escaped,
    shown,
)
from netfold.sim.files import UnreadableError, text_of
from netfold.sim.keys import Location, is_name, key_fields
from netfold.sim.results.repeats import repeat_name
from netfold.sim.scenario.profile_keys import custom_profiles, with_profile_files
from netfold.sim.scenario.sweep_keys import (
    DEVICE_SUFFIX,
    NONE,
    SWEEP,
    Change,
    Sweep,
    as_first_job,
    change,
    combinations,
    merge,
    merge_settings,
    only,
    override_at,
    parse_set,
    read_sweep,
    require_baseline,
    sweep_schema,
    with_child,
)
from netfold.sim.scenario.validation_errors import (
    missing_key,
    naming,
    unknown_key,
    validated,
    without_consequences,
)
from netfold.sim.scenario.variant_keys import (
    JOB_KEYS,
    Header,
    JobSections,
    Settings,
    Variant,
    each_seed,
)
from netfold.sim.scenario.yaml_tree import (
    COMMAND_LINE,
    EXTENSION,
    Node,
    ScenarioText,
    duplicate_hint,
    parse,
    read_source,
)
from netfold.sim.workload.device_rooflines import HARDWARE
from netfold.sim.workload.workload_keys import Training
from netfold.switch.profiles import Profile

# Python files that a scenario names: netfold runs them and says so, or refuses them where that is wanted.


_HINT = "name a model of netfold's, or, if you trust {}, leave out --no-code (from Python: code=False)"


# Whether files may run, and those of which that was said. None: they run without a word, as in the workers
# of a sweep, which has said it.
_policy: ContextVar[tuple[bool, set[str]] | None] = ContextVar("policy", default=None)


@contextmanager
def running_code(allowed: bool, told: Iterable[str] = ()) -> Iterator[None]:
    """In the block, a scenario that is read may name Python files, each of which is said once, or may not.

    Nothing is said of files that are `told` already.
    """
    token = _policy.set((allowed, set(told)))
    try:
        yield
    finally:
        _policy.reset(token)


def check_code(scenario: Scenario) -> None:
    """Say on stderr which Python files a scenario names, before they run.

    Raises
    ------
    ScenarioError
        None may run; every key that names such a file, at its line.
    """
    policy, mistakes = _policy.get(), Mistakes()
    if policy is None:
        return
    may_run, told = policy
    for variant in scenario.variants:
        for job in variant.jobs or (variant,):
            if not isinstance(job.workload, Training) or not job.workload.model.code:
                continue
            file = job.workload.model.code
            if not may_run:
                location = Location(scenario, variant.name, job.name if variant.jobs else "")
                message = f"names the Python file {file!r}, and no code of a scenario may run"
                mistakes.add(location.job_error("workload.model", message, _HINT.format(file)))
            elif file not in told:
                told.add(file)
                print(escaped(f"runs code from {file}"), file=sys.stderr)
    mistakes.raise_any()


_HEADER = tuple(field.name for field in key_fields(Header))
_SETTINGS = tuple(Settings.model_fields)
_JOB_SECTIONS = tuple(JobSections.model_fields)
_KEYS = (*_HEADER, *_SETTINGS, "variants", SWEEP)
_NAMELESS = "x"  # placeholder for a missing name
_EACH_HAS = "each {} has a name and the keys it changes"


@dataclass(frozen=True)
class _Given:
    """A scenario as read, and the changes of the command line."""

    file: str
    folder: Path
    """The folder that its paths are relative to."""
    sets: tuple[str, ...]
    source_text: bytes
    document: Node
    changes: tuple[Change, ...]


@dataclass(frozen=True, kw_only=True)
class Scenario(Header):
    """A scenario file as given, and its variants with everything merged, validated and in base units.

    With a sweep, the variants are those of its first point.
    """

    switch_profiles: Mapping[str, Profile]  # its custom profiles, by name
    variants: tuple[Variant, ...]
    file: str
    sets: tuple[str, ...]
    source_text: bytes = field(repr=False)
    document: Node = field(repr=False)
    trees: Mapping[str, Node] = field(repr=False)
    """The tree of each variant, by name."""
    sweep: Sweep | None
    given: _Given = field(repr=False)

    def each_seed(self) -> tuple[int, ...]:
        # The seeds that its variants are run with.
        return each_seed(self.seed, self.seeds)

    def repeat(self, seed: int) -> Scenario:
        # With another seed, which the names of variants have, too.
        other = self.point((), seed)
        variants = [
            variant.model_copy(update={"name": repeat_name(variant.name, seed)}) for variant in other.variants
        ]
        trees = {repeat_name(name, seed): tree for name, tree in other.trees.items()}
        return replace(other, variants=tuple(variants), trees=trees)

    def point(self, values: Sequence[Node], seed: int) -> Scenario:
        # `values` has one of each axis. Mistakes are at the lines of the values.
        seeded = parse_set(f"seed={seed}")
        inputs = replace(self.given, changes=(*self.given.changes, seeded))
        return _build(inputs, tuple(map(change, values)), None, Mistakes())

    def locate(self, path: str, variant: str | None = None) -> str:
        # "FILE:LINE", or "--set". For a missing value it is where the value would belong; without a variant
        # it is in the shared part.
        node, _ = self._tree(variant).nearest(path.split("."))
        return node.place

    def error(self, path: str, message: str, hint: str = "", variant: str | None = None) -> ScenarioError:
        # A value that the variant does not set is marked as a default.
        node, missing = self._tree(variant).nearest(path.split("."))
        if missing and variant is not None:
            missing = (*missing[:-1], f"{missing[-1]} (default)")
        return node.error(message, hint, missing)

    def _tree(self, variant: str | None) -> Node:
        return self.document if variant is None else self.trees[variant]


def load(path: str | Path | ScenarioText, sets: Iterable[str] = (), seed: int | None = None) -> Scenario:
    """Read a scenario; `sets` are texts "PATH=VALUE", and `seed` wins over the file's.

    The path "-" is standard input; paths in such a scenario are relative to the working folder.

    Raises
    ------
    ScenarioError
        All mistakes in keys and values, each with its location; broken syntax is reported alone.
    """
    sets, mistakes = tuple(sets), Mistakes()
    file, folder, source_text = read_source(path)
    document = _document(file, source_text, mistakes)
    document = with_profile_files(document, folder, mistakes)
    changes = _changes(sets, seed, mistakes)
    sweep = read_sweep(document, changes, mistakes)
    others = tuple(assignment for assignment in changes if assignment[0][0] != SWEEP)
    inputs = _Given(file, folder, sets, source_text, document, others)
    for single in sweep.singles if sweep else ():
        with mistakes.collecting():
            _build(inputs, single, None, Mistakes())
    return _build(inputs, sweep.first if sweep else (), sweep, mistakes)


def _build(given: _Given, swept: tuple[Change, ...], sweep: Sweep | None, mistakes: Mistakes) -> Scenario:
    """The scenario after the changes of a point, and then those of the command line."""
    document, changes = given.document, (*swept, *given.changes)
    for path, value in changes:
        if path[0] in _HEADER:
            with mistakes.collecting():
                changed = merge(document, override_at(document, path, value))
                document = with_profile_files(changed, given.folder, mistakes)
    header: Header | None = None
    with mistakes.collecting():
        header = validated(Header, only(document, _HEADER))
    profiles = custom_profiles(header.profiles, document, mistakes) if header else {}
    trees = {name: _merge(document, item, mistakes) for name, item in _items(document, mistakes).items()}
    _change(trees, changes, mistakes)
    require_baseline(document, header.baseline if header else None, trees, mistakes)
    variants = _variants(trees, mistakes)
    if mistakes.found or header is None:
        raise as_one_error(without_consequences(mistakes.found))
    scenario = Scenario(
        **vars(header),
        switch_profiles=profiles,
        variants=variants,
        file=given.file,
        sets=given.sets,
        source_text=given.source_text,
        document=document,
        trees=trees,
        sweep=sweep,
        given=given,
    )
    _require_answer(scenario)
    if sweep is not None and scenario.seeds != 1:
        raise scenario.error("seeds", "the points of a sweep have seeds of their own", "write sweep.seeds")
    check_code(scenario)
    return scenario


def _require_answer(scenario: Scenario) -> None:
    """Require that some variant has what the scenario's question is about."""
    sections = [job for variant in scenario.variants for job in variant.jobs or (variant,)]
    tests = [getattr(job.workload, "evaluate", None) for job in sections]
    known = {
        "time_to_target": (
            any(test is not None and test.target is not None for test in tests),
            ("no variant has a target", "give workload.evaluate a target, or ask for step_time"),
        ),
        "score_at_time": (
            any(test is not None for test in tests),
            (
                "no variant is tested on held-out data",
                "give a training workload.evaluate, or ask for step_time",
            ),
        ),
        "makespan": (
            any(
                variant.admission == "fifo" or any(job.is_template for job in variant.jobs)
                for variant in scenario.variants
            ),
            ("no variant has jobs that come and go", "give jobs arrivals, or ask for step_time"),
        ),
    }
    has_answer, why = known.get(scenario.question or "", (True, ()))
    if not has_answer:
        raise scenario.error("question", *why)


def _changes(sets: Sequence[str], seed: int | None, mistakes: Mistakes) -> list[Change]:
    """Paths and values from the command line."""
    changes = []
    for text in (*sets, *(() if seed is None else (f"seed={seed}",))):
        with mistakes.collecting():
            changes.append(parse_set(text))
    return changes


def _document(file: str, source_text: bytes, mistakes: Mistakes) -> Node:
    try:
        text = text_of(source_text)
    except UnreadableError as error:
        raise ScenarioError(file, error.line, "", "is not UTF-8 text", error.hint) from None
    document = parse(file, text, mistakes=mistakes)
    if not isinstance(document.value, Mapping):
        needed = [key for key, field in Variant.model_fields.items() if field.is_required()]
        hint = f"it needs the keys {', '.join(needed)}"
        mistakes.raise_any()
        raise document.error(f"a scenario must be a mapping, found {shown(document.plain)}", hint)
    _refuse_unknown(document, _KEYS, mistakes)
    return document


def _items(document: Node, mistakes: Mistakes) -> dict[str, Node]:
    """The changes of each variant, by name; a file without variants has one, named like the scenario."""
    variants = document.children.get("variants")
    if variants is None:
        name = document.children.get("name")
        named = name if name is not None and is_name(name.value) else None  # else it is a mistake already
        item = only(document, ())
        return {
            str(named.value) if named else _NAMELESS: with_child(
                item, "name", named or replace(item, value=_NAMELESS)
            )
        }
    if not variants.value:
        mistakes.add(
            variants.error(
                f"must be a list of variants, found {shown(variants.plain)}", _EACH_HAS.format("variant")
            )
        )
    if variants.value and isinstance(variants.value, Mapping):
        with mistakes.collecting():
            return _by_name(combinations(variants, _SETTINGS), "variant", _SETTINGS, mistakes)
        return {}
    return _by_name(variants, "variant", _SETTINGS, mistakes)


def _by_name(items: Node, what: str, allowed: Sequence[str], mistakes: Mistakes) -> dict[str, Node]:
    """The mappings of a list by their `name`, with allowed keys only; other items are left out."""
    hint = _EACH_HAS.format(what)
    if not isinstance(items.value, tuple):
        mistakes.add(items.error(f"must be a list of {what}s, found {shown(items.plain)}", hint))
        return {}
    nodes_by_name: dict[str, Node] = {}
    for item in items.value:
        if not isinstance(item.value, Mapping):
            mistakes.add(item.error(f"must be a mapping, found {shown(item.plain)}", hint))
        elif "name" not in item.value:
            mistakes.add(missing_key(item, "name", hint))
        elif (name := str(item.value["name"].plain)) in nodes_by_name:
            first = duplicate_hint(nodes_by_name[name], items.path)
            mistakes.add(item.error(f"the name {shown(name)} appears twice", first))
        else:
            nodes_by_name[name] = _refuse_unknown(item, ("name", *allowed), mistakes)
    return nodes_by_name


def _merge(document: Node, item: Node, mistakes: Mistakes) -> Node:
    merged = merge_settings(only(document, _SETTINGS), item)
    whole = replace(merged, line=item.line, path=item.path)  # the location for missing sections
    return _with_jobs(whole, mistakes)


def _with_jobs(settings: Node, mistakes: Mistakes) -> Node:
    """Settings with complete jobs: sections that a job leaves out come from the settings."""
    jobs = settings.children.get("jobs")
    if jobs is None:
        return settings
    common = only(settings, _JOB_SECTIONS)
    complete = tuple(
        replace(merge_settings(common, job), line=job.line, path=job.path)
        for job in _by_name(jobs, "job", JOB_KEYS, mistakes).values()
    )
    return with_child(settings, "jobs", replace(jobs, value=complete))


def _change(trees: dict[str, Node], changes: Iterable[Change], mistakes: Mistakes) -> None:
    """Apply the changes of the command line to the variants' trees."""
    for path, value in changes:
        if path[0] in _HEADER:
            continue
        with mistakes.collecting():
            if path[0] == "variants":
                names, inner = _address(path, value, trees), path[2:]
            else:
                names, inner = tuple(trees), path
            if inner[0] not in _SETTINGS:
                raise unknown_key(value, inner[0], _SETTINGS if path[0] == "variants" else _KEYS)
            for name in names:
                trees[name] = _changed(trees[name], inner, value, mistakes)


def _changed(settings: Node, path: tuple[str, ...], value: Node, mistakes: Mistakes) -> Node:
    """Settings with another value at a path; a section of all jobs is changed in each of them too."""
    jobs = settings.children.get("jobs")
    if path[0] == "jobs" and len(path) > 1:
        names, inner = _addressed_job(path, value, jobs), path[2:]
    else:
        settings = merge_settings(settings, override_at(settings, path, value))
        names, inner = tuple(jobs.children) if jobs is not None else (), path
    if path[0] == "jobs" and len(path) == 1:
        return _with_jobs(settings, mistakes)
    if jobs is None or inner[0] not in JOB_KEYS:
        return settings
    changed = tuple(
        merge_settings(job, override_at(job, inner, value)) if name in names else job
        for name, job in jobs.children.items()
    )
    return with_child(settings, "jobs", replace(jobs, value=changed))


def _addressed_job(path: tuple[str, ...], value: Node, jobs: Node | None) -> tuple[str, ...]:
    names = tuple(jobs.children) if jobs is not None else ()
    if path[1] not in names:
        known = f"jobs: {', '.join(names)}" if names else "this variant has no jobs; write the list whole"
        raise value.error(f"there is no job {path[1]!r}", known)
    if len(path) < 3:
        raise value.error("a job cannot be replaced as a whole", "use jobs.NAME.PATH=VALUE")
    if path[2] not in JOB_KEYS:
        raise unknown_key(value, path[2], JOB_KEYS)
    return path[1:2]


def _address(path: tuple[str, ...], value: Node, trees: Mapping[str, Node]) -> tuple[str, ...]:
    if len(path) < 3:
        raise value.error("a variant cannot be replaced as a whole", "use variants.NAME.PATH=VALUE")
    if path[1] not in trees:
        raise value.error(f"there is no variant {path[1]!r}", f"variants: {', '.join(trees)}")
    return path[1:2]


def _refuse_unknown(mapping: Node, allowed: Sequence[str], mistakes: Mistakes) -> Node:
    """The mapping without unknown keys, which go to `mistakes`."""
    for key, child in mapping.children.items():
        if key not in allowed:
            mistakes.add(unknown_key(child, key, allowed))
    return only(mapping, allowed)


def _variants(trees: Mapping[str, Node], mistakes: Mistakes) -> tuple[Variant, ...]:
    variants: list[Variant] = []
    by_text: dict[str, dict[str, ScenarioError]] = {}  # each mistake, and the variants that have it
    for name, tree in trees.items():
        collector = Mistakes()
        with collector.collecting():
            variants.append(validated(Variant, as_first_job(tree, _JOB_SECTIONS)))
        for error in collector.found:
            is_section = isinstance(error, MissingKeyError) and error.path == tree.path
            by_text.setdefault(error.message if is_section else str(error), {})[name] = error
    for text, by_variant in by_text.items():
        name, first = next(iter(by_variant.items()))
        if len(by_variant) == len(trees):
            mistakes.add(first)
        elif text == str(first):
            mistakes.add(naming(name, first))
        else:
            for error in by_variant.values():
                mistakes.add(error)
    return tuple(variants)


# JSON Schema of scenario files, for completion and checks in an editor.
#
# The schema has keys, types, ranges and units. It does not check whether a variant is complete, because a
# section may be split between the shared part and each variant: `netfold validate` checks that.


_EXTENSIONS: dict[str, Any] = {f"^{EXTENSION}": {}}  # ignored keys


def schema() -> dict[str, Any]:
    """The schema, draft 2020-12."""
    # In this mode pydantic writes defaults as the file does: "100Gbps", not 100000000000.
    header, settings, variant = (
        TypeAdapter(section).json_schema(mode="serialization") for section in (Header, Settings, Variant)
    )
    definitions = {**header["$defs"], **variant.pop("$defs")}
    definitions["Workers"] = {"anyOf": [definitions["Workers"], {"type": "integer", "minimum": 1}]}
    definitions["Routing"] = {"anyOf": [definitions["Routing"], definitions["Routing"]["properties"]["kind"]]}
    for name in ("SwitchProfile", "Prices"):  # or the path of a file with one
        definitions[name] = {"anyOf": [definitions[name], {"type": "string"}]}
    _with_short_devices(settings, variant, definitions["JobSection"])
    properties = {**header["properties"], **settings["properties"]}
    by_key = _partial(settings["properties"])
    variants = {
        "description": "Alternatives to compare: a list, each with a name and the keys it changes; "
        "or a grid, each key with its values by name, or a name of an axis with sets of keys by name.",
        "anyOf": [
            {"type": "array", "minItems": 1, "items": _partial(variant) | {"required": ["name"]}},
            {
                "type": "object",
                "minProperties": 1,
                "properties": {
                    key: {"type": "object", "minProperties": 1, "additionalProperties": value}
                    for key, value in by_key.items()
                },
                "additionalProperties": {
                    "type": "object",
                    "minProperties": 1,
                    "additionalProperties": {
                        "type": "object",
                        "minProperties": 1,
                        "properties": by_key,
                        "additionalProperties": False,
                    },
                },
            },
        ],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "netfold scenario",
        "type": "object",
        "properties": _partial(properties) | {"variants": variants, SWEEP: _partial(sweep_schema())},
        "required": ["name"],
        "additionalProperties": False,
        "patternProperties": _EXTENSIONS,
        "$defs": _partial(definitions),
    }


def _with_short_devices(*sections: dict[str, Any]) -> None:
    """Let devices be written as names, too."""
    short = {"type": "string", "examples": [NONE, *HARDWARE, f"cpu{DEVICE_SUFFIX}"]}
    for section in sections:
        section["properties"]["device"]["oneOf"].append(short)


def _partial(schema: Any) -> Any:
    """The schema for parts of what it describes: no key is required, and several kinds may match."""
    if isinstance(schema, list):
        return [_partial(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    noise = {"title"} if isinstance(schema.get("title"), str) else set()
    remaining = {
        key: value for key, value in schema.items() if key not in noise | {"required", "discriminator"}
    }
    partial = {"anyOf" if key == "oneOf" else key: _partial(value) for key, value in remaining.items()}
    if partial.get("additionalProperties") is False:
        partial["patternProperties"] = _EXTENSIONS
    return partial


# Conversion of scenarios and values from Python to the text of scenario files.


Given = str | os.PathLike[str] | Mapping[str, Any]  # a path, a scenario's text, or its content


def scenario_of(given: Given) -> Path | ScenarioText:
    """The path or text of a scenario: text has a line break, a path has none.

    Raises
    ------
    NetfoldError
        It is none of the three, or a mapping with a value that a file cannot hold.
    """
    if isinstance(given, Mapping):
        return ScenarioText(_as_json(given, "scenario", indent=1) + "\n", "<mapping>")
    if isinstance(given, str) and "\n" in given:
        return ScenarioText(given, "<text>")
    if not isinstance(given, str | os.PathLike):
        raise NetfoldError(
            f"cannot read a scenario from {type(given).__name__}",
            "give the path of a scenario file, its text, or a mapping with its content",
        )
    return Path(given)


def sets_of(changes: Mapping[str, Any] | None) -> tuple[str, ...]:
    # As `--set` writes them: "PATH=VALUE".
    return tuple(f"{path}={_value(path, value)}" for path, value in (changes or {}).items())


def _value(path: str, value: Any) -> str:
    """A value as a user writes it: text has no quotes if it is read back as the same text."""
    if isinstance(value, str):
        try:
            if parse(COMMAND_LINE, value, first_line=0, path=path).plain == value:
                return value
        except ScenarioError:
            pass
    return _as_json(value, path)


def _as_json(value: Any, what: str, indent: int | None = None) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, default=_plain)
    except (TypeError, ValueError) as error:
        raise NetfoldError(
            f"{what}: {error}", "use values that a scenario file can hold: text, numbers, lists and mappings"
        ) from None


def _plain(value: Any) -> Any:
    """Convert a value of a type that JSON does not have."""
    match value:
        case np.generic():
            return value.item()
        case np.ndarray():
            return value.tolist()
        case os.PathLike():
            return os.fspath(value)
        case Mapping():
            return dict(value)
    raise TypeError(f"cannot write {type(value).__name__} into a scenario")

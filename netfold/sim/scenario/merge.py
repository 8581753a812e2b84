"""Merges variants and values from the command line into a scenario.

Mappings merge key by key; other values, lists included, are replaced. A mapping whose `kind` changes is
replaced as a whole, because another kind has other options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from netfold.errors import Mistakes, ScenarioError, shown
from netfold.sim.keys.fields import NAME_MAX, NAME_RULE, is_name
from netfold.sim.scenario.explain import unknown_key
from netfold.sim.scenario.node import COMMAND_LINE, EXTENSION, Node, parse
from netfold.spelling import names_hint

NONE = "none"  # the device on which compute takes no time
DEVICE_SUFFIX = ".json"  # of device files
VARIANTS_MAX = 1000  # of a grid
_EXCLUDING = {"workload": ("elements", "tensors"), "device": ("name", "file", "model")}  # keys of sections
_WHOLE_LIST = "write the list whole, for example --set 'faults=[{kind: loss, rate: 1%}]'"


def merge(base: Node, override: Node) -> Node:
    """`base` with the changes of `override`."""
    if not isinstance(base.value, Mapping) or not isinstance(override.value, Mapping):
        return override
    old, new = base.value.get("kind"), override.value.get("kind")
    if old is not None and new is not None and old.plain != new.plain:
        return override
    children = dict(base.value)
    for key, child in override.value.items():
        children[key] = merge(children[key], child) if key in children else child
    return Node(children, base.file, base.line, base.path)


def merge_settings(settings: Node, changes: Node) -> Node:
    """Settings with changes, in both of which short forms are written out first.

    Where a section changes to another of the keys that exclude each other, the key that it had is dropped.
    """
    settings, changes = _expand(settings), _expand(changes)
    for section, keys in _EXCLUDING.items():
        had, gets = (one.children.get(section) for one in (settings, changes))
        if had is None or gets is None or not any(key in gets.children for key in keys):
            continue
        dropped = {key for key in keys if key not in gets.children}
        if dropped & set(had.children):
            kept = {key: child for key, child in had.children.items() if key not in dropped}
            settings = with_child(settings, section, replace(had, value=kept))
    return merge(settings, changes)


def _expand(settings: Node) -> Node:
    """Settings with short forms written out, so that they merge with long ones.

    `workers: 8` is `workers: {count: 8}`, `hosts: dpdk` is `hosts: {kind: dpdk}`; of a workload,
    `bucket: 8KiB` is `fusion: {kind: size, bytes: 8KiB}`; `device: a100` is
    `device: {kind: roofline, name: a100}`, and `device: cpu.json` `device: {kind: roofline, file: cpu.json}`.
    """
    workload, device = settings.children.get("workload"), settings.children.get("device")
    if device is not None and isinstance(device.value, str):
        settings = with_child(settings, "device", replace(device, value=_device(device)))
    for key, only_one in (("workers", "count"), ("hosts", "kind")):
        short = settings.children.get(key)
        if short is not None and not isinstance(short.value, Mapping | tuple | None):
            settings = with_child(settings, key, replace(short, value={only_one: short}))
    if workload is None or "bucket" not in workload.children or "fusion" in workload.children:
        return settings
    children = dict(workload.children)
    bucket = children.pop("bucket")
    kind = replace(bucket, value="one" if bucket.value is None else "size")
    options = {"kind": kind} if bucket.value is None else {"kind": kind, "bytes": bucket}
    fusion = replace(bucket, value=options)
    return with_child(settings, "workload", replace(workload, value={**children, "fusion": fusion}))


def _device(short: Node) -> dict[str, Node]:
    """The long form of a device that is written as its name, or as that of a device file."""
    name = str(short.value)
    if name == NONE:
        return {"kind": short}
    key = "file" if name.endswith(DEVICE_SUFFIX) else "name"
    return {"kind": replace(short, value="roofline"), key: short}


def as_first_job(settings: Node, sections: Sequence[str]) -> Node:
    """Settings whose job sections are those of the first job."""
    jobs = settings.children.get("jobs")
    if jobs is None or not jobs.value:
        return settings
    first = only(next(iter(jobs.children.values())), sections)
    return replace(settings, value={**settings.children, **first.children})


def only(mapping: Node, keys: Sequence[str]) -> Node:
    """The mapping with some of its keys alone."""
    children = {key: child for key, child in mapping.children.items() if key in keys}
    return Node(children, mapping.file, mapping.line, mapping.path)


def with_child(mapping: Node, key: str, child: Node) -> Node:
    """The mapping with another value of a key."""
    return replace(mapping, value={**mapping.children, key: child})


def combinations(axes: Node, keys: Sequence[str]) -> Node:
    """Variants written as a grid, as a list: each combination of one named value of every key.

    The first key varies slowest; a variant's name joins those of its values by "-".

    Raises
    ------
    ScenarioError
        A key that variants do not have, or without named values; a name that variants cannot have; too many.
    """
    for key, named in axes.children.items():
        if key not in keys:
            raise unknown_key(named, key, keys)
        if not isinstance(named.value, Mapping) or not named.value:
            hint = f"for example {key}: {{first: …, second: …}}"
            raise named.error(f"must have its values by name, found {shown(named.plain)}", hint)
        for name, value in named.value.items():
            if not is_name(name):
                hint = f"use {NAME_RULE}, at most {NAME_MAX} characters"
                raise value.error(f"{shown(name)} cannot be part of a variant's name", hint)
    if (count := prod(len(named.children) for named in axes.children.values())) > VARIANTS_MAX:
        hint = "use fewer values, several scenarios, or a sweep"
        raise axes.error(f"spans {count:,} variants, the most is {VARIANTS_MAX:,}", hint)
    variants = [replace(axes, value={"name": replace(axes, value="")})]
    for key, named in axes.children.items():
        values = named.children.items()
        variants = [_combined(one, key, name, value) for one in variants for name, value in values]
    return replace(axes, value=tuple(variants))


def _combined(variant: Node, key: str, name: str, value: Node) -> Node:
    before = str(variant.children["name"].value)
    whole = f"{before}-{name}" if before else name
    named = with_child(variant, "name", replace(value, value=whole))
    return with_child(replace(named, line=value.line, path=f"variants.{whole}"), key, value)


def require_baseline(
    document: Node, name: str | None, variants: Mapping[str, Node], mistakes: Mistakes
) -> None:
    """Add a mistake if the baseline is none of the variants."""
    if name is not None and variants and name not in variants:
        where, _ = document.nearest(["baseline"])
        hint = names_hint(name, variants, "variants", 8)
        mistakes.add(where.error(f"there is no variant {shown(name)}", hint))


def parse_set(text: str) -> tuple[tuple[str, ...], Node]:
    """Path and value of one `--set PATH=VALUE`; the value is YAML, as in a file.

    Raises
    ------
    ScenarioError
        No "=", an empty part in the path, or a value that is broken YAML.
    """
    path, equals, value = text.partition("=")
    parts = tuple(path.split("."))
    if not equals or not all(parts):
        raise ScenarioError(
            COMMAND_LINE,
            0,
            "",
            f"cannot read {shown(text)}",
            "use PATH=VALUE, for example topology.rate=10Gbps",
        )
    _require_read(parts, path)
    return parts, parse(COMMAND_LINE, value, first_line=0, path=path)


def _require_read(parts: Sequence[str], path: str) -> None:
    """Refuse a path through an ignored key; names of variants and jobs may begin like one."""
    for above, part in zip(("", *parts), parts, strict=False):
        if part.startswith(EXTENSION) and above not in ("variants", "jobs", "profiles"):
            message = f"keys that begin with {EXTENSION!r} are ignored, so this changes nothing"
            raise ScenarioError(COMMAND_LINE, 0, path, message, "remove it")


def override_at(node: Node | None, path: Sequence[str], value: Node) -> Node:
    """A tree to merge into `node` that sets the value at `path`; list items go by index or name.

    Raises
    ------
    ScenarioError
        The path goes through a list without such an item, or through a missing list.
    """
    if not path:
        return value
    head, rest = path[0], path[1:]
    if head.isdecimal() and (node is None or not node.plain):
        missing = ".".join(value.path.split(".")[: -len(path)])
        raise value.error(f"{missing} has no item {head}", _WHOLE_LIST)
    children = node.children if node is not None else {}
    below = override_at(children.get(head), rest, value)
    if node is None or not isinstance(node.value, tuple):
        here = ".".join(value.path.split(".")[: -len(path)])
        return Node({head: below}, value.file, value.line, here)
    if head not in children:
        raise value.error(f"there is no item {head!r}", f"items: {', '.join(children)}")
    changed = {**children, head: merge(children[head], below)}
    return Node(tuple(changed.values()), node.file, node.line, node.path)

"""What decides a point's results besides its text, its files and versions: the user's code, the machine."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path

from netfold.sim.collectives.registry import COLLECTIVES
from netfold.sim.plan.host_profiles import host_profiles
from netfold.sim.resolve.plan import Plan
from netfold.sim.workload.user_model import imported
from netfold.sim.workload.workload_keys import Training
from netfold.switch.programs import programs
from netfold.topologies.kind import topology_kinds

_KNOWN = ("netfold", "builtins", *sys.stdlib_module_names)  # their sources, or versions, are in every digest


@dataclass(frozen=True)
class Origins:
    """What a point stands on besides its text and files."""

    known: Mapping[str, str]  # what: its digest or name
    doubts: tuple[str, ...]  # what cannot be known and may have changed


def origins_of(plan: Plan, digests: dict[str, str]) -> Origins:
    """The registered objects that a plan uses, with the sources of their modules; and what is not known.

    `digests` keeps those of modules from one point to the next.
    """
    known, doubts = dict[str, str](), list[str]()
    modules = {module for one in _registered(plan) for value in _values(one) for module in _modules(value)}
    for module in sorted(modules):
        if module not in digests:
            digests[module] = _source_digest(module)
        known[module] = digests[module]
        if not known[module]:
            doubts.append(f"the source of {module}")
    for variant in plan.scenario.variants:
        for job in variant.jobs or (variant,):
            known[f"hosts {job.hosts.kind}"] = repr(job.hosts.profile())
            if isinstance(job.workload, Training) and job.workload.model.code:
                doubts.append(f"what {job.workload.model.code} reads")
    if not all(job.device.is_reproducible for variant in plan.variants for job in variant.jobs):
        known["machine"] = f"{platform.node()}, {platform.machine()}, {os.cpu_count()} cores"
    return Origins(known, tuple(dict.fromkeys(doubts)))


def _registered(plan: Plan) -> Iterator[object]:
    """The objects of a plan that are found in registries."""
    for variant in plan.scenario.variants:
        yield topology_kinds().get(variant.topology.kind)
        for section in variant.jobs or (variant,):
            yield host_profiles().get(section.hosts.kind)
            yield COLLECTIVES[section.collective.kind]
            yield programs().get(getattr(section.collective, "program", ""))
    for job in (job for variant in plan.variants for job in variant.jobs):
        yield from (job.codec, job.device, job.workload)


def _values(value: object) -> Iterator[object]:
    """A value, and those in it: fields of dataclasses, items of lists."""
    yield value
    if is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            yield from _values(getattr(value, one.name))
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
        for one in (path, *sorted(imported(path, path.parents[name.count(".")]))):
            digest.update(hashlib.sha256(one.read_bytes()).digest())
    except OSError:
        return ""
    return digest.hexdigest()

"""netfold's own collectives: the files of `kinds/` and hierarchies of them; what is said of any of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from pydantic import ValidationError

from netfold.errors import NetfoldError
from netfold.homomorphic.merge import Merge
from netfold.kinds import modules_of, register
from netfold.sim.collectives.collective import (
    CollectiveSection,
    CollectiveSpec,
    JobContext,
    Keys,
    Resolved,
    check_absence,
    check_workers,
    collectives,
)
from netfold.sim.collectives.hierarchical import hierarchical
from netfold.sim.collectives.schedule_costs import Estimate
from netfold.topologies.network import Network

_specs = [
    value
    for module in modules_of("netfold.sim.collectives.kinds")
    for value in vars(module).values()
    if isinstance(value, CollectiveSpec)
]
_specs.sort(key=lambda spec: spec.listed)
for _collective in (*_specs, hierarchical(_specs)):
    register(_collective)


def resolve(section: CollectiveSection, job: JobContext) -> Resolved:
    """The plan of a job's collective.

    Raises
    ------
    ScenarioError
        The codec has no room for so many workers on any network; the collective does not carry its merges or
        absent workers (the hint names collectives that do); or a key is unusable.
    """
    spec, codec = collectives()[section.kind], job.codec
    check_workers(job.location, codec, len(job.hosts), "wrap")
    if refused := codec.merges - spec.merges:
        names = ", ".join(sorted(merge.value for merge in refused))
        message = f"codec {codec.kind!r} needs {names}, which collective {spec.kind} cannot carry"
        raise job.location.job_error("codec", message, _remedy(codec.merges))
    check_absence(job.location, codec, f"collective {spec.kind}", spec.carries_absence)
    return spec.resolve(section, job)


def _remedy(merges: Collection[Merge]) -> str:
    """The collectives that carry these merges on any network, as a hint."""
    specs = [spec for spec in collectives().values() if spec.works_anywhere]
    able = [spec.kind for spec in specs if spec.merges.issuperset(merges)]
    names = " or ".join(filter(None, [", ".join(able[:-1]), *able[-1:]]))
    return f"use collective.kind: {names}" if able else "use another codec"


# Estimates of the time of an all-reduce with every collective, from their closed forms.


ELEMENT_BYTES = 4


def estimates(
    network: Network,
    nodes: Sequence[int],
    size_bytes: int,
    seed: int = 0,
    report: Callable[[str], None] | None = None,
    sections: Mapping[str, CollectiveSection] | None = None,
) -> dict[str, Estimate | NetfoldError]:
    """The estimated time with each collective that has a closed form, the fastest first.

    Of a collective that the network cannot carry, the reason; these come last.

    Parameters
    ----------
    nodes
        Of the workers, two or more, in rank order.
    size_bytes
        What every worker contributes: dense float32.
    seed
        Of the choice among equal paths.
    report
        Called with what is worked out next.
    sections
        A scenario's own, by the name that each has in the result. Other collectives have their defaults; one
        with keys that must be given has a time for each of its `choices`.
    """
    words = -(-size_bytes // ELEMENT_BYTES)
    candidates = dict(sections or {})
    kinds = {section.kind for section in candidates.values()}
    for kind, spec in collectives().items():
        candidates.update({} if kind in kinds else _with_defaults(spec))
    times: dict[str, Estimate | NetfoldError] = {}
    for name, section in candidates.items():
        estimate = collectives()[section.kind].estimate
        if estimate is None:
            continue
        if report is not None:
            report(f"estimate of {name}")
        try:
            times[name] = estimate(section, network, nodes, words, seed)
        except NetfoldError as error:
            times[name] = error
        except ValueError as error:  # the network has not what a key asks for
            message, _, hint = str(error).partition("; ")
            times[name] = NetfoldError(message, hint)
    return dict(sorted(times.items(), key=lambda timed: _seconds(timed[1])))


def _with_defaults(spec: CollectiveSpec) -> Iterator[tuple[str, CollectiveSection]]:
    """The section with all defaults; without them, one for each choice of the keys, named by them."""
    try:
        yield spec.kind, spec.section(kind=spec.kind)
    except ValidationError:
        for name, keys in spec.choices().items():
            yield f"{spec.kind}, {name or _describe(keys)}", spec.section(kind=spec.kind, **keys)


def _describe(keys: Keys) -> str:
    """ "group_size 2, inner ring, outer tree": keys that no scenario gave."""
    return ", ".join(
        f"{key} {value['kind'] if isinstance(value, Mapping) else value}" for key, value in keys.items()
    )


def _seconds(estimate: Estimate | NetfoldError) -> float:
    return estimate.seconds if isinstance(estimate, Estimate) else math.inf

"""All collectives by kind. A new collective is a file or folder and an entry here.

Scenarios know what is here when the first of them is read: a collective from elsewhere is added before that.
"""

from __future__ import annotations

from collections.abc import Collection

from netfold.homomorphic.message import Merge
from netfold.sim.collectives.all_gather.spec import ALL_GATHER
from netfold.sim.collectives.collective import COLLECTIVES as COLLECTIVES
from netfold.sim.collectives.collective import (
    CollectiveSection,
    JobContext,
    Resolved,
    check_absence,
    check_workers,
)
from netfold.sim.collectives.halving_doubling.spec import HALVING_DOUBLING
from netfold.sim.collectives.hierarchical.spec import hierarchical
from netfold.sim.collectives.in_network.spec import IN_NETWORK
from netfold.sim.collectives.parameter_server.spec import PARAMETER_SERVER
from netfold.sim.collectives.ring.spec import RING
from netfold.sim.collectives.torus_2d.spec import TORUS_2D
from netfold.sim.collectives.tree.spec import TREE

_FLAT = (RING, HALVING_DOUBLING, TREE, TORUS_2D, IN_NETWORK, ALL_GATHER, PARAMETER_SERVER)
COLLECTIVES.update((spec.kind, spec) for spec in (*_FLAT, hierarchical(_FLAT)))


def resolve(section: CollectiveSection, job: JobContext) -> Resolved:
    """The plan of a job's collective.

    Raises
    ------
    ScenarioError
        The codec has no room for so many workers on any network; the collective does not carry its merges or
        absent workers (the hint names collectives that do); or a key is unusable.
    """
    spec, codec = COLLECTIVES[section.kind], job.codec
    check_workers(job.location, codec, len(job.hosts), "wrap")
    if refused := codec.merges - spec.merges:
        names = ", ".join(sorted(merge.value for merge in refused))
        message = f"codec {codec.kind!r} needs {names}, which collective {spec.kind} cannot carry"
        raise job.location.job_error("codec", message, _remedy(codec.merges))
    check_absence(job.location, codec, f"collective {spec.kind}", spec.carries_absence)
    return spec.resolve(section, job)


def _remedy(merges: Collection[Merge]) -> str:
    """The collectives that carry these merges on any network, as a hint."""
    specs = [spec for spec in COLLECTIVES.values() if spec.works_anywhere]
    able = [spec.kind for spec in specs if spec.merges.issuperset(merges)]
    names = " or ".join(filter(None, [", ".join(able[:-1]), *able[-1:]]))
    return f"use collective.kind: {names}" if able else "use another codec"

"""The best possible time of an all-reduce with every collective, from their closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from pydantic import ValidationError

from netfold.sim.collectives.best import Best
from netfold.sim.collectives.registry import COLLECTIVES
from netfold.sim.collectives.spec import CollectiveSection, CollectiveSpec
from netfold.sim.errors import NetfoldError
from netfold.topologies.routing import Network

ELEMENT_BYTES = 4


def best_times(
    network: Network,
    nodes: Sequence[int],
    size_bytes: int,
    seed: int = 0,
    report: Callable[[str], None] | None = None,
) -> dict[str, Best | NetfoldError]:
    """The best possible time with each collective that has a closed form, the fastest first.

    Keys have their defaults; a collective with keys that must be given has a time for each of its `choices`.
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
    """
    words = -(-size_bytes // ELEMENT_BYTES)
    found: dict[str, Best | NetfoldError] = {}
    for spec in COLLECTIVES.values():
        if spec.best is None:
            continue
        for name, section in _sections(spec):
            if report is not None:
                report(f"best time of {name}")
            try:
                found[name] = spec.best(section, network, nodes, words, seed)
            except NetfoldError as error:
                found[name] = error
    return dict(sorted(found.items(), key=lambda one: _seconds(one[1])))


def _sections(spec: CollectiveSpec) -> Iterator[tuple[str, CollectiveSection]]:
    """The section with all defaults; without them, one for each choice of the keys."""
    try:
        yield spec.kind, spec.section(kind=spec.kind)
    except ValidationError:
        for name, keys in spec.choices().items():
            yield f"{spec.kind}, {name}" if name else spec.kind, spec.section(kind=spec.kind, **keys)


def _seconds(one: Best | NetfoldError) -> float:
    return one.seconds if isinstance(one, Best) else math.inf

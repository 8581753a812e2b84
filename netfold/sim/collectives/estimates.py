"""Estimates of the time of an all-reduce with every collective, from their closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from pydantic import ValidationError

from netfold.errors import NetfoldError
from netfold.sim.collectives.closed_form import Estimate
from netfold.sim.collectives.collective import CollectiveSection, CollectiveSpec, Keys
from netfold.sim.collectives.registry import COLLECTIVES
from netfold.topologies.network import Network

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
    own = dict(sections or {})
    named = {section.kind for section in own.values()}
    for kind, spec in COLLECTIVES.items():
        own.update({} if kind in named else _with_defaults(spec))
    times: dict[str, Estimate | NetfoldError] = {}
    for name, section in own.items():
        estimate = COLLECTIVES[section.kind].estimate
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
            yield f"{spec.kind}, {name or _described(keys)}", spec.section(kind=spec.kind, **keys)


def _described(keys: Keys) -> str:
    """ "group_size 2, inner ring, outer tree": keys that no scenario gave."""
    return ", ".join(
        f"{key} {value['kind'] if isinstance(value, Mapping) else value}" for key, value in keys.items()
    )


def _seconds(estimate: Estimate | NetfoldError) -> float:
    return estimate.seconds if isinstance(estimate, Estimate) else math.inf

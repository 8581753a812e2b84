"""A workload of an execution trace: random gradients of its all-reduces' sizes, at their times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from netfold.errors import DataError
from netfold.homomorphic.round import Tensor
from netfold.sim.workload.layers import ELEMENTS_MAX, placed
from netfold.sim.workload.profile import LAYERS_MAX
from netfold.sim.workload.synthetic import SyntheticSpec
from netfold.sim.workload.trace.chakra.read import COLLECTIVE, RECEIVE, SEND, Node, read_nodes
from netfold.sim.workload.trace.chakra.schedule import TracedStep, is_all_reduce, steps_of
from netfold.sim.workload.trace.recorded import AsRecorded, PassTimes, RecordedTimes
from netfold.sim.workload.trace.sections import ChakraTrace

_PS_PER_US = 10**6
_SHOWN = 6


def chakra_spec(path: Path, section: ChakraTrace) -> SyntheticSpec:
    """Sizes and times of a trace, with the section's density and values.

    Raises
    ------
    DataError
        The file is no execution trace, its steps sum different gradients, or nothing in it sums gradients.
    """
    given = section.path
    nodes = read_nodes(path)
    chosen = _of_group(given, nodes, section.group)
    try:
        steps = steps_of(chosen)
    except ValueError as error:
        raise DataError(f"{given}: {error}", "the trace is damaged: convert it again") from None
    found = [step for step in steps if step.reductions]
    if not found:
        raise DataError(
            f"{given}: has no all-reduce, so there are no gradients to sum",
            "use the trace of a data-parallel training: nodes COMM_COLL_NODE with comm_type 0 and comm_size",
        )
    _require_alike(given, found)
    tensors = _tensors(given, found[0], section.element_bytes)
    names = tuple(tensor.name for tensor in tensors)
    times = RecordedTimes(names, tuple((_pass_times(step),) for step in found))
    fusion = section.fusion.rule() if section.fusion else AsRecorded(tuple((i,) for i in range(len(tensors))))
    return SyntheticSpec(
        sum(tensor.elements for tensor in tensors),
        section.density,
        section.pattern,
        section.row_elements,
        section.overlap,
        section.distribution,
        tensors,
        times.ready_shares(),
        fusion,
        times=times if section.times == "recorded" else None,
        given=given,
        held_steps=len(found),
        notes=_notes(given, chosen, steps[-1], times),
    )


def _of_group(given: str, nodes: Sequence[Node], group: str | None) -> list[Node]:
    """The nodes, where all-reduces of other process groups sum nothing."""
    groups = sorted({node.group for node in nodes if is_all_reduce(node)})
    if group is None:
        if len(groups) > 1:
            raise DataError(
                f"{given}: has all-reduces of {len(groups)} process groups",
                f"choose with group: {', '.join(groups)}",
            )
        return list(nodes)
    if group not in groups:
        raise DataError(
            f"{given}: has no all-reduce of the group {group!r}", f"it has: {', '.join(groups) or 'none'}"
        )
    return [
        node._replace(comm_type=None) if is_all_reduce(node) and node.group != group else node
        for node in nodes
    ]


def _require_alike(given: str, steps: Sequence[TracedStep]) -> None:
    """Require that all steps sum gradients of the same sizes."""
    first = [one.node.comm_bytes for one in steps[0].reductions]
    for index, step in enumerate(steps):
        sizes = [one.node.comm_bytes for one in step.reductions]
        if sizes != first:
            raise DataError(
                f"{given}: step {index} sums {_listed(sizes)} bytes, step 0 {_listed(first)}: computations "
                "that need an all-reduce begin a new step",
                "only traces of data-parallel training can be replayed: every step sums all gradients once",
            )


def _listed(sizes: Sequence[int | None]) -> str:
    more = f", … ({len(sizes)} all-reduces)" if len(sizes) > _SHOWN else ""
    return ", ".join(map(str, sizes[:_SHOWN])) + more


def _tensors(given: str, step: TracedStep, element_bytes: int) -> tuple[Tensor, ...]:
    """A tensor for each all-reduce, with a name of its own."""
    if len(step.reductions) > LAYERS_MAX:
        raise DataError(
            f"{given}: a step has {len(step.reductions)} all-reduces", f"use {LAYERS_MAX} at most"
        )
    counts = Counter(one.node.name for one in step.reductions)
    tensors = []
    for index, (node, _) in enumerate(step.reductions):
        elements, rest = divmod(node.comm_bytes or 0, element_bytes)
        if rest:
            raise DataError(
                f"{given}: node {node.number} sums {node.comm_bytes} bytes, which are no whole elements of "
                f"{element_bytes} bytes",
                "give their size with element_bytes",
            )
        name = node.name if node.name and counts[node.name] == 1 else f"{node.name or 'all-reduce'}#{index}"
        tensors.append(Tensor(name, (elements,), name))
    if sum(tensor.elements for tensor in tensors) > ELEMENTS_MAX:
        raise DataError(f"{given}: its all-reduces have too many elements", f"use {ELEMENTS_MAX:,} at most")
    return placed(tensors)


def _pass_times(step: TracedStep) -> PassTimes:
    start_us = step.forward_us
    end_us = max(step.end_us, step.reductions[-1].ready_us)
    return PassTimes(
        start_us * _PS_PER_US,
        (end_us - start_us) * _PS_PER_US,
        tuple((one.ready_us - start_us) * _PS_PER_US for one in step.reductions),
    )


def _notes(given: str, nodes: Sequence[Node], last: TracedStep, times: RecordedTimes) -> tuple[str, ...]:
    """What of a trace is not replayed."""
    notes = []
    kinds = (SEND, RECEIVE, COLLECTIVE)
    if others := sum(node.kind in kinds and not is_all_reduce(node) for node in nodes):
        notes.append(f"{given}: {others} communications are no all-reduces of gradients: they take no time")
    if not last.reductions and last.end_us:
        notes.append(f"{given}: {last.end_us} µs of computations after the last all-reduce are left out")
    if not times.longest_ps:
        notes.append(f"{given}: has no compute times (duration_micros): all gradients are ready at once")
    return tuple(notes)

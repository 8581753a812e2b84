"""All-reduce inside groups of workers and across them, as in NCCL, Horovod and BlueConnect: its keys."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Union

from pydantic import Field, create_model, field_validator, model_validator

from netfold.errors import shown
from netfold.homomorphic.merge import MERGEABLE, Merge
from netfold.sim.collectives.collective import (
    Collective,
    CollectiveSection,
    CollectiveSpec,
    JobContext,
    Resolved,
    RunContext,
)
from netfold.sim.collectives.hierarchical_schedule import (
    Groups,
    HierarchicalPlan,
    HierarchicalRun,
    collective_of,
    groups_of,
    groups_on,
    outline_of_hierarchy,
)
from netfold.sim.collectives.hierarchical_switched import (
    Shape,
    Switched,
    SwitchedPlan,
    estimate_switched,
    resolve_switched,
)
from netfold.sim.collectives.host_collective import Chunk, ChunkedCollective, HostPlan, resolve_as
from netfold.sim.collectives.schedule_costs import Estimate, estimate_of, tables_bytes
from netfold.sim.keys import ByKind, Count
from netfold.topologies.network import Network
from netfold.units import SIZE

# Its closed form.
#
# A message is reduced inside every group, all-reduced across groups by those who hold the same words, and
# distributed inside every group. With n = g · G workers in G groups of g, rings inside and across take on an
# idle network with equal links
#
#     2 (1 − 1 / g) · M words inside, 2 (1 − 1 / G) · M / g across, and 2 (g − 1) + 2 (G − 1) ways:
#
# as many words as one ring of all workers; 2 (1 − 1 / G) · M of them leave and enter every group. A tree
# inside leaves all words at its root, which then sends these alone.
#
# Blocks of a message are carried side by side: of a message of many blocks, the inside and the outside of a
# group work at the same time, and the one that takes longer counts.
#
# Either part may run in switches (`hierarchical_switched.py`): then the phases follow one another, without
# blocks in between.


KIND = "hierarchical"
_OF_THE_WHOLE = (frozenset(ChunkedCollective.model_fields) | {"order"}) - {"kind"}
"""Keys that parts do not have: groups are what the topology says already."""


class HierarchySection(ChunkedCollective):
    """All-reduce inside groups of workers, then across the groups, then back inside."""

    recorded_always: ClassVar[tuple[str, ...]] = (
        *ChunkedCollective.recorded_always,
        "groups",
        "inner",
        "outer",
    )

    kind: Literal["hierarchical"]
    groups: Literal["rack", "island"] = "rack"
    """Which workers are a group: those on the same switch (rack), or those of an island of the topology.
    Groups in rank order have `group_size` or `group_count` instead."""
    group_size: Count | None = None
    """Workers of a group, in rank order; the last group may have fewer."""
    group_count: Count | None = None
    """Number of groups, in rank order; sizes differ by one at most."""
    chunk: Chunk = SIZE.parse("4MiB")
    """Payload of a block, of which several are under way at the same time."""

    @field_validator("groups", mode="before")
    @classmethod
    def _is_no_number(cls, groups: object) -> object:
        """A number here was the size of a group."""
        if isinstance(groups, (int, float)):
            raise ValueError(
                f"must be rack or island, found {shown(groups)}\n"
                f"for groups of {groups} workers use group_size: {groups}; "
                f"for {groups} groups, group_count: {groups}"
            )
        return groups

    @model_validator(mode="after")
    def _groups_are_told_once(self) -> HierarchySection:
        keys = [key for key in ("groups", "group_size", "group_count") if key in self.model_fields_set]
        if len(keys) > 1:
            raise ValueError(f"has {' and '.join(keys)}, which contradict each other\nuse one of them")
        return self


def _resolve(section: Any, job: JobContext, parts: dict[str, CollectiveSpec]) -> Resolved:
    """The plan of a job's hierarchy.

    Raises
    ------
    ScenarioError
        The workers do not form groups, a part does not fit the size of a group, or as for `resolve_as`.
    """
    groups = groups_of(section, job)
    if (shape := _switched(section, groups, parts)) is not None:
        return resolve_switched(shape, job)
    inner, outer = collective_of(section.inner), collective_of(section.outer)
    for size in sorted({len(group) for group in groups}):
        inner.fit(size, job)
    outer.fit(len(groups), job)
    make_plan = partial(
        HierarchicalPlan, groups=groups, parts=(inner, outer), block_words=section.chunk_words
    )
    outline = outline_of_hierarchy(groups, (inner, outer), job.elements, section.chunk_words)
    tables = tables_bytes(outline.transfers, outline.cells, outline.workers)
    return resolve_as(section, job, outline, tables=tables, make_plan=make_plan)


def _estimate(
    section: Any,
    network: Network,
    nodes: Sequence[int],
    words: int,
    seed: int,
    parts: dict[str, CollectiveSpec],
) -> Estimate:
    """One group alone, or workers alone, have one level."""
    groups = groups_on(section, network, nodes)
    if (shape := _switched(section, groups, parts)) is not None:
        return estimate_switched(shape, network, nodes, words, seed)
    levels = collective_of(section.inner), collective_of(section.outer)
    outline = outline_of_hierarchy(groups, levels, words, section.chunk_words)
    return estimate_of(outline, network, nodes, words, seed)


def _switched(section: Any, groups: Groups, parts: dict[str, CollectiveSpec]) -> Shape | None:
    """The hierarchy if a part of it runs in switches."""
    inner, outer = parts[section.inner.kind], parts[section.outer.kind]
    is_between_hosts = inner.is_between_hosts and outer.is_between_hosts
    return None if is_between_hosts else Shape(section, groups, inner, outer)


def _start(plan: HostPlan, context: RunContext, parts: dict[str, CollectiveSpec]) -> Collective:
    if isinstance(plan, SwitchedPlan):
        return Switched(plan, context, parts)
    assert isinstance(plan, HierarchicalPlan)
    return HierarchicalRun(plan, context)


def hierarchical(specs: Sequence[CollectiveSpec]) -> CollectiveSpec:
    """The hierarchy of these collectives, as far as they can be composed."""
    parts = {spec.kind: spec for spec in specs if spec.is_between_hosts or spec.as_part}
    return CollectiveSpec(
        KIND,
        MERGEABLE | {Merge.HOST},
        _section(list(parts.values())),
        partial(_resolve, parts=parts),
        partial(_start, parts=parts),
        carries_absence=True,
        estimate=partial(_estimate, parts=parts),
        choices=lambda: {"": _example(list(parts))},
    )


def _example(kinds: Sequence[str]) -> dict[str, Any]:
    return {"group_size": 2, "inner": {"kind": kinds[0]}, "outer": {"kind": kinds[1]}}


def _section(parts: Sequence[CollectiveSpec]) -> type[CollectiveSection]:
    """The keys, with those of the parts."""
    sections = tuple(_part(spec.section) if spec.is_between_hosts else spec.section for spec in parts)
    either: Any = Annotated[Union[sections], ByKind()]  # noqa: UP007 (as many as there are)
    return create_model(
        "HierarchicalSection",
        __base__=HierarchySection,
        __doc__=HierarchySection.__doc__,
        inner=(
            either,
            Field(
                description="The collective inside every group; switches have their own of the keys above."
            ),
        ),
        outer=(either, Field(description="The collective across groups, likewise.")),
    )


def _part(section: type[CollectiveSection]) -> type[CollectiveSection]:
    """A section without the keys that are those of the whole."""
    fields: dict[str, Any] = {
        name: (field.rebuild_annotation(), field)
        for name, field in section.model_fields.items()
        if name not in _OF_THE_WHOLE
    }
    part = create_model(section.__name__, __base__=CollectiveSection, __doc__=section.__doc__, **fields)
    part.described_by = section
    return part

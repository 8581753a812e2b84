"""What a hierarchy with switches consists of: who does what, without times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from netfold.sim.collectives.closed_form import Cut, Steps
from netfold.sim.collectives.collective import CollectiveSpec
from netfold.sim.collectives.hierarchical.closed_form import Closed
from netfold.sim.collectives.hierarchical.groups import Groups
from netfold.sim.collectives.hierarchical.switched.halves import Lane, lanes_of, sharing, sharing_steps


@dataclass(frozen=True)
class Shape:
    """A hierarchy with switches: who does what, without times."""

    section: Any
    groups: Groups
    inner_spec: CollectiveSpec
    outer_spec: CollectiveSpec

    @property
    def inner(self) -> Callable[[int], Cut]:
        """The schedule of a group of some size."""
        composable = self.inner_spec.composable
        return sharing if composable is None else partial(composable.cut, self.section.inner)

    @property
    def outer(self) -> Cut | None:
        """The schedule across groups; None in switches."""
        composable = self.outer_spec.composable
        return None if composable is None else composable.cut(self.section.outer, len(self.groups))

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Who carries which words across groups."""
        return lanes_of(self.groups, self.inner)

    def host_steps(self, words: int) -> list[Steps]:
        """Phases between hosts: inside, and across, each a chain; those without hops are left out.

        The two halves inside are apart from each other, so each begins with words that nobody waits for.
        """
        lanes = [(lane.share, lane.members) for lane in self.lanes]
        closed = Closed(self.groups, lanes, self.section.chunk_words)
        inner, outer = self.inner_spec.composable, self.outer_spec.composable
        phases = [closed.inside(partial(inner.steps, self.section.inner) if inner else sharing_steps)]
        if outer is not None:
            phases.append(closed.across(outer.steps(self.section.outer, len(self.groups))))
        block = min(words, self.section.chunk_words)
        found = [
            [_whole(stage, block, halves) for stage in phase if stage.hops]
            for phase, halves in zip(phases, (2, 1), strict=False)
        ]
        return [Steps.chain(phase) for phase in found if phase]


def _whole(stage: Steps, block: int, halves: int) -> Steps:
    """A stage whose words pass several workers; each passes them on when it has all of a block."""
    if stage.trips <= max(stage.hops, 1):
        return stage
    waits = max(0, stage.trips - halves) / (stage.trips - 1)
    return stage._replace(passed_words=round(block / stage.chunks * waits))

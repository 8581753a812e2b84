"""The closed form of hierarchies between hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

from netfold.sim.collectives.closed_form import Steps
from netfold.sim.collectives.hierarchical.groups import Groups


class Closed:
    """The closed form of a hierarchy."""

    def __init__(self, groups: Groups, owners: Sequence[tuple[float, Sequence[int]]], block: int) -> None:
        """`owners` are, for each stretch of words, its share and its owner in each group."""
        self._groups, self._owners, self._block = groups, owners, block

    def steps(self, inner: Callable[[int], Steps], outer: Steps, *, is_cut: bool) -> Steps:
        """Stages inside, of all groups at the same time, then those across, of all owners."""
        stages = [one for one in (*self.inside(inner), *self.across(outer)) if one.hops]
        stages = [one._replace(windows=1) for one in stages]  # its blocks share that of their pair
        if not is_cut:
            return Steps.chain(stages)
        passed = [one._replace(passed_words=self._block // one.chunks) for one in stages]
        return Steps.chain([passed[0]._replace(overlaps=True), *passed[1:]])

    def inside(self, inner: Callable[[int], Steps]) -> list[Steps]:
        """The numbers are those of the largest group."""
        by_size = {len(group): list(inner(len(group)).stages) for group in self._groups if len(group) > 1}
        if not by_size:
            return []
        largest = by_size[max(by_size)]
        found = []
        for stage, same in zip_longest(largest, zip(*by_size.values(), strict=False)):
            of_size = dict(zip(by_size, same, strict=True)) if same else {max(by_size): stage}
            pairs = [
                (group[source], group[target])
                for group in self._groups
                if len(group) in of_size
                for source, target in of_size[len(group)].pairs
            ]
            found.append(stage._replace(pairs=pairs, channels=(), then=None))
        return found

    def across(self, outer: Steps) -> list[Steps]:
        """Each stretch of words has an all-reduce of its own; the numbers are those of the longest."""
        longest = max(share for share, _ in self._owners)
        return [
            stage._replace(
                pairs=[(of[source], of[target]) for _, of in self._owners for source, target in stage.pairs],
                channels=(),
                chunks=max(1, int(stage.chunks / longest)),
                then=None,
            )
            for stage in outer.stages
        ]

"""Counts how many scenarios have each key, word, form, kind and pair of kinds of the language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

from tests.soak.drawn import units_of
from tests.soak.language import language, pair, pairs

LEAST = 5  # scenarios of each


class Coverage:
    """Counts over many scenarios."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in wanted()}

    def add(self, scenario: Mapping[str, Any]) -> None:
        """Count a scenario."""
        has = units_of(scenario)
        for name, drawn in (("keys", has.keys), ("words and forms", has.choices), ("kinds", has.kinds)):
            self.counts[name].update(drawn)
        self.counts["pairs of kinds"].update(has.pairs)

    def rare(self) -> list[tuple[str, int]]:
        """What came up in fewer than five scenarios."""
        return [
            (name, counts[name])
            for sort, counts in self.counts.items()
            for name in wanted()[sort]
            if counts[name] < LEAST
        ]

    def table(self, ran: Coverage) -> str:
        """How much of the language came up at least five times, in all scenarios and in those that ran."""
        lines = [f"{'of the language':16} {'there are':>10} {'drawn 5 ×':>10} {'ran 5 ×':>10} {'ran':>10}"]
        for sort, names in wanted().items():
            drawn, often, once = (
                sum(counts[name] >= least for name in names)
                for counts, least in (
                    (self.counts[sort], LEAST),
                    (ran.counts[sort], LEAST),
                    (ran.counts[sort], 1),
                )
            )
            lines.append(f"{sort:16} {len(names):10} {drawn:10} {often:10} {once:10}")
        return "\n".join(lines)


@cache
def wanted() -> dict[str, list[str]]:
    """All that has to come up, by sort."""
    units = language()
    return {
        "keys": sorted(units.keys),
        "words and forms": sorted(units.choices),
        "kinds": sorted(f"{section}={kind}" for section, kinds in units.kinds.items() for kind in kinds),
        "pairs of kinds": [pair(*two) for two in pairs()],
    }

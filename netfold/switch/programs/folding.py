"""Folding: packets of many words pass several pipelines of a chip in a row."""

from __future__ import annotations

from netfold.switch.program import Demand

FOLDED_WORDS, FOLDED_PIPES = 256, 4


def folded(demand: Demand) -> tuple[int, int]:
    """Words per pass and pipelines in a row, as in SwitchML's `next_step_selector.py`."""
    if demand.words_per_pass is not None:
        per_pass = min(demand.words_per_pass, demand.words)
        return per_pass, -(-demand.words // per_pass)
    if demand.words == FOLDED_WORDS:
        return FOLDED_WORDS // FOLDED_PIPES, FOLDED_PIPES
    return demand.words, 1

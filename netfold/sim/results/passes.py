"""What the counters of a job's switches come to: trips through pipelines, and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from netfold.sim.plan.collective import Passes


def passes_count(passes: Passes, points: Sequence[Mapping[str, int]]) -> int:
    """Trips through pipelines of all that a program did, by the counters of its switches.

    A packet that is discarded, or a duplicate of one in an unfinished slot, is dropped in its first pass; one
    that is answered takes the way of one that completes a slot. With n workers and nothing lost that makes
    n + 1 per result for SwitchML's 64 words and 4 · n + 7 for its 256 (`next_step_selector.py` of
    p4lang/p4app-switchML).
    """
    total = 0
    for point in points:
        dropped = point["discarded"] + point["duplicates_dropped"]
        total += dropped + (point["packets"] - dropped) * passes.packet
        total += (point["results"] + point.get("partials", 0) + point["answers"]) * passes.result
    return total


def results_count(root: Mapping[str, int]) -> int:
    """Sums that went down to workers, complete or not: of ATP the server's, else the root's."""
    if root["acknowledged"]:
        return root["acknowledged"] - root["requests"]
    return root["results"] + root["timed_out"]

"""Which of the generated faults are played: some at random, in strata of the package."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from tests.mutants.fault import Fault

# Of how many faults: a stratum's folders, and how many of them are drawn.
COUNT = 500
ELSEWHERE = "elsewhere"
STRATA: dict[str, tuple[tuple[str, ...], int]] = {
    "engine and switch": (("netfold/sim/engine/", "netfold/switch/"), 150),
    "homomorphic": (("netfold/homomorphic/",), 150),
    "run, collectives, checks": (
        ("netfold/sim/run/", "netfold/sim/collectives/", "netfold/sim/checks/"),
        150,
    ),
    ELSEWHERE: ((), 50),
}


def stratum_of(file: str) -> str:
    """The stratum of a source file."""
    return next((name for name, (folders, _) in STRATA.items() if file.startswith(folders)), ELSEWHERE)


def drawn(faults: Sequence[Fault], count: int, seed: str) -> list[Fault]:
    """About `count` faults, each as likely as any other of its stratum; the same ones for the same seed."""
    chosen: list[Fault] = []
    for name, (_, share) in STRATA.items():
        members = [fault for fault in faults if stratum_of(fault.file) == name]
        chosen += sorted(members, key=lambda fault: _rank(seed, fault))[: round(count * share / COUNT)]
    return chosen


def _rank(seed: str, fault: Fault) -> str:
    """A hash: a draw changes little if the sources do."""
    path = fault.file.removeprefix("netfold/")
    return hashlib.sha256(json.dumps([seed, path, *fault.key]).encode()).hexdigest()

"""Which of the generated faults are played: some at random, in strata, or those in lines that changed."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

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


FILE = re.compile(r"^\+\+\+ b/([^\t]*)\t?$")
HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")


class NoEarlierCommitError(Exception):
    """There is no commit before the one that is asked for, or no repository."""


def changed_lines(commit: str, root: Path) -> dict[str, set[int]]:
    """Numbers of the lines, by file, that differ from how they were before a commit.

    Raises
    ------
    NoEarlierCommitError
        The commit is the first one, or the clone is too shallow; or this is no repository.
    """
    command = [
        "git",
        "diff",
        "--unified=0",
        "--no-color",
        "--no-ext-diff",
        "--no-prefix",
        f"{commit}~1",
        "--",
    ]
    command[-2:-2] = ["--dst-prefix=b/"]
    try:
        answer = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoEarlierCommitError(
            f"git knows no commit before {commit} here (the first one, a shallow clone, or no repository)"
        ) from error
    lines: defaultdict[str, set[int]] = defaultdict(set)
    file = ""
    for line in answer.stdout.splitlines():
        if match := FILE.match(line):
            file = match[1]
        elif match := HUNK.match(line):
            first, count = int(match[1]), int(match[2] or 1)
            lines[file].update(range(first, first + count))
    return {name: numbers for name, numbers in lines.items() if numbers}

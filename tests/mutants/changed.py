"""The lines that the last commits changed."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from pathlib import Path

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

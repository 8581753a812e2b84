"""Program: write runs with reports, killed at each file operation in turn, just after it.

    python -m tests.sim.results.killed OUT [--before]

`--before`: just before each, too. Prints one JSON object per attempt: the operation and what a reader finds
afterwards. Ends when an attempt survives. Children are forked before polars has started a thread, so that
importing it is paid for once.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import netfold.sim.report.html_report
from netfold.errors import DataError
from netfold.sim.results.folder import load, package_versions
from tests.sim.results.builders import RING, reported

OPERATIONS = ("mkdir", "fsync", "replace", "rename", "symlink")


def die_at(number: int, after: bool) -> None:
    """Make the numbered file operation the last thing that this process does."""
    count = itertools.count()

    def watched(operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            mine = next(count) == number
            if mine and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return operation(*arguments, **options)
            finally:  # some are expected to fail, such as making a folder that is there
                if mine:
                    os.kill(os.getpid(), signal.SIGKILL)

        return call

    for name in OPERATIONS:
        setattr(os, name, watched(getattr(os, name)))


def attempt(out_dir: Path, number: int, after: bool) -> bool:
    """Write a run in a child that is killed on the way; whether the child was killed."""
    child = os.fork()
    if child == 0:
        die_at(number, after)
        reported(out_dir, replace(RING, steps=1, buckets=1), seed=number + 100)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def readable(*paths: Path) -> list[bool]:
    """Whether a reader takes each for a finished run. In a child, because polars starts threads."""
    child = os.fork()
    if child == 0:
        unreadable = 0
        for number, path in enumerate(paths):
            try:
                load(path)
            except DataError:
                unreadable |= 1 << number
        os._exit(unreadable)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return [not status >> number & 1 for number in range(len(paths))]


def files_of(folder: Path) -> list[tuple[str, int, int]]:
    """The files of a folder as they are: what reads them finds the same as long as this is the same."""
    files = [path for path in folder.resolve().rglob("*") if path.is_file()]
    return sorted((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in files)


def is_whole(page: Path) -> bool:
    """Whether a report is there from beginning to end, or not at all."""
    return not page.exists() or page.read_text("utf-8").endswith("</html>\n")


def main() -> None:
    out_dir, is_before_too = Path(sys.argv[1]), "--before" in sys.argv
    # Drawing is slow and touches no file, nor does the text of the page.
    netfold.sim.report.html_report.figures = lambda run: {"throughput.svg": b"<svg/>"}
    netfold.sim.report.html_report.render = lambda run, drawn: f"<html>{'x' * 100_000}</html>\n"
    package_versions()  # which are kept, for all children
    attempt(out_dir, 10**9, after=False)  # a good run to begin with
    known: set[Path] = set()
    before: list[tuple[str, int, int]] = []
    latest = False
    for number in itertools.count():
        for after in (False, True)[not is_before_too :]:
            killed = attempt(out_dir, number, after)
            visible = {path for path in (out_dir / "quick").iterdir() if not path.name.startswith(".")}
            new = sorted(visible - known)
            fine: list[bool] = []
            if new or files_of(out_dir / "latest") != before:
                latest, *fine = readable(out_dir / "latest", *new)
                before = files_of(out_dir / "latest")
            known |= visible
            print(
                json.dumps(
                    {
                        "number": number,
                        "after": after,
                        "unreadable": [
                            one.name for one, is_fine in zip(new, fine, strict=True) if not is_fine
                        ],
                        "half": [path.name for path in new if not is_whole(path / "report.html")],
                        "visible": len(visible),
                        "hidden": sum(path.name.startswith(".") for path in (out_dir / "quick").iterdir()),
                        "latest_is_readable": latest,
                    }
                )
            )
        if not killed:
            return


if __name__ == "__main__":
    main()

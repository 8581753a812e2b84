"""`make mutants`: plays deliberate faults, and lists those that no test near them notices."""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests import ROOT
from tests.mutants.by_hand import faults_by_hand
from tests.mutants.draw import COUNT, NoEarlierCommitError, changed_lines, drawn
from tests.mutants.fault import Fault, found_again, read_records
from tests.mutants.play import LIBRARIES_FOR_CHANGES, play
from tests.mutants.report import report, report_of_changes
from tests.mutants.tree import Sources

CLOSING_S = 3.0  # to end processes and remove the copy


def main() -> int:
    """Exit status: 0 if enough faults are noticed, else 1."""
    begin_s = time.monotonic()
    options = _options()
    sources = Sources()
    if options.changed:
        return _play_changes(sources, options, begin_s + options.limit - CLOSING_S)
    seed = options.seed or commit()
    faults = _chosen(options, sources, seed)
    if not faults:
        print("no fault is chosen", file=sys.stderr)
        return 2
    print(f"{len(faults)} faults; seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="netfold-mutants-") as folder:
        records = play(sources, faults, options.keep or Path(folder), options.jobs, options.record)
    return report(records, read_records(options.replay) if options.replay else [])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT, help=f"faults to draw ({COUNT})")
    parser.add_argument("--seed", metavar="TEXT", help="what they are drawn with (the commit)")
    parser.add_argument("--jobs", "-j", type=int, default=2, help="processes at a time (2)")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="TEXT", help="files with this in their path"
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--by-hand", action="store_true", help="only faults that were written by hand")
    kinds.add_argument("--drawn", action="store_true", help="only faults that are drawn")
    kinds.add_argument("--replay", type=Path, metavar="FILE", help="the faults of a record once more")
    kinds.add_argument(
        "--changed", nargs="?", const="HEAD", metavar="COMMIT", help="those in lines changed since before it"
    )
    parser.add_argument("--limit", type=float, default=30.0, metavar="S", help="seconds for --changed (30)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the copy here, or use the one there")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write verdicts here; skip those there")
    return parser.parse_args()


def commit() -> str:
    """The hash of the commit, or a word where there is none."""
    command = ["git", "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "without a commit"
    return answer.stdout.strip()


def _chosen(options: argparse.Namespace, sources: Sources, seed: str) -> list[Fault]:
    files = [file for file in sources.files if any(text in file for text in options.only)]
    if options.replay:
        kept = [record.fault for record in read_records(options.replay)]
        return _again([fault for fault in kept if any(text in fault.file for text in options.only)], sources)
    every = {file: sources.text(file) for file in sources.files}
    by_hand = [] if options.drawn else [fault for fault in faults_by_hand(every) if fault.file in files]
    return [*([] if options.by_hand else drawn(sources.faults(files), options.count, seed)), *by_hand]


def _again(kept: Sequence[Fault], sources: Sources) -> list[Fault]:
    found = found_again(kept, sources.faults())
    for fault, same in zip(kept, found, strict=True):
        if same is None:
            print(f"not there any more: {fault.label}")
    return [fault for fault in found if fault is not None]


def _play_changes(sources: Sources, options: argparse.Namespace, deadline_s: float) -> int:
    """Play faults in changed lines until the time is over; those in compiled files would take longer."""
    try:
        lines = changed_lines(options.changed, ROOT)
    except NoEarlierCommitError as error:
        print(f"no faults played: {error}")
        return 0
    files = [file for file in sources.files if file in lines]
    faults = [fault for fault in sources.faults(files) if fault.line in lines[fault.file]]
    random.Random(options.seed or commit()).shuffle(faults)
    plain = [fault for fault in faults if not sources.has_compiled_code(fault.file)]
    left = len(faults) - len(plain)
    print(
        f"{len(faults)} faults in lines changed since before {options.changed}; "
        f"{left} of them in compiled files, left to `make mutants`",
        flush=True,
    )
    if not plain:
        return 0
    with tempfile.TemporaryDirectory(prefix="netfold-mutants-") as folder:
        records = play(
            sources, plain, Path(folder), options.jobs, None, LIBRARIES_FOR_CHANGES, deadline_s, original=ROOT
        )
    return report_of_changes(records)


if __name__ == "__main__":
    sys.exit(main())

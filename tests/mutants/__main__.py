"""`make mutants`: runs the tests of all deliberate faults, and lists the faults that no test noticed."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.mutants.lists import FOLDERS, all_harmless, all_mutants, list_of
from tests.mutants.mutant import Mutant
from tests.mutants.play import ERROR, KILLED, SURVIVED, Nests, Outcome, play_with, play_without
from tests.mutants.tree import make_copy

BAR = 0.97


def main() -> int:
    """Exit status: 0 if at least 97 % of the faults are noticed and the tests of all could run, else 1."""
    options = _options()
    mutants = all_mutants()
    chosen = [
        (number, mutant)
        for number, mutant in enumerate(mutants, start=1)
        if not options.only or any(text in f"{mutant.file}: {mutant.name}" for text in options.only)
    ]
    if not chosen:
        print(f"no fault has any of {options.only} in its file or name", file=sys.stderr)
        return 2
    begin_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="netfold-mutants-") as folder:
        copy = Path(options.keep or folder).resolve()
        if not (copy / "netfold_switch.py").exists():
            copy.mkdir(parents=True, exist_ok=True)
            make_copy(copy, mutants)
        nests = Nests(copy, options.jobs, options.seed)
        try:
            return _play(nests, chosen, copy, begin_s)
        finally:
            nests.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--jobs", "-j", type=int, default=2, help="processes at a time (2)")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="TEXT", help="only faults with this in their file or name"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the plans that property tests draw (1)")
    parser.add_argument("--keep", metavar="DIR", help="make the copy here, or use an existing one")
    return parser.parse_args()


def _play(nests: Nests, chosen: list[tuple[int, Mutant]], copy: Path, begin_s: float) -> int:
    tests = list(dict.fromkeys(test for _, mutant in chosen for test in mutant.tests))
    print(
        f"{len(chosen)} faults, {len(tests)} tests or files; compiling, and running all without a fault",
        flush=True,
    )
    without = play_without(nests, tests)
    broken = {test: outcome for test, outcome in without.items() if outcome.status != 0}
    for test, outcome in broken.items():
        print(f"{test} fails without any fault:\n{_end_of(outcome)}")
    if broken:
        return 1
    compiled = _kernels(copy)
    print(f"all pass, after {time.monotonic() - begin_s:.0f} s; {compiled} kernels compiled", flush=True)
    outcomes = play_with(nests, chosen, without, _print)
    return _sum_up(dict(chosen), outcomes, _kernels(copy) - compiled, begin_s)


def _print(mutant: Mutant, outcome: Outcome) -> None:
    print(f"{outcome.verdict:9}{outcome.took_s:6.1f} s  {mutant.file}: {mutant.name}", flush=True)


def _sum_up(mutants: dict[int, Mutant], outcomes: list[Outcome], more_kernels: int, begin_s: float) -> int:
    for outcome in outcomes:
        if outcome.verdict == ERROR:
            print(f"\n{mutants[outcome.number].name}: its tests could not run\n{_end_of(outcome)}")
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    print()
    for folder in dict.fromkeys(_folder(mutant) for mutant in mutants.values()):
        own = Counter(each.verdict for each in outcomes if _folder(mutants[each.number]) == folder)
        print(f"{folder:14}{own[KILLED]:4} of {own.total()} noticed")
    survivors = [mutants[each.number] for each in outcomes if each.verdict == SURVIVED]
    for mutant in survivors:
        print(f"survived: {mutant.file}: {mutant.name}; tests: {' '.join(mutant.tests)}")
    share = verdicts[KILLED] / max(1, verdicts[KILLED] + verdicts[SURVIVED])
    print(
        f"{verdicts[KILLED]} of {len(outcomes)} noticed ({100 * share:.1f} %; {100 * BAR:.0f} % required), "
        f"{verdicts[SURVIVED]} not, {verdicts[ERROR]} could not run; {len(all_harmless())} more change "
        f"nothing; {more_kernels} kernels compiled with a fault on; {time.monotonic() - begin_s:.0f} s"
    )
    return 0 if share >= BAR and not verdicts[ERROR] else 1


def _folder(mutant: Mutant) -> str:
    return next(name for name in FOLDERS if mutant in list_of(name))


def _kernels(copy: Path) -> int:
    return sum(1 for _ in (copy / ".cache").rglob("*.nbc"))


def _end_of(outcome: Outcome) -> str:
    return "\n".join(outcome.output.read_text(encoding="utf-8", errors="replace").splitlines()[-25:])


if __name__ == "__main__":
    sys.exit(main())

"""What is printed of played faults, and whether enough of them were noticed."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from pathlib import Path

from tests.mutants.draw import STRATA, stratum_of
from tests.mutants.fault import BY_HAND, Record, found_again, read_accepted
from tests.mutants.play import DROPPED, ERROR, KILLED, SURVIVED, UNDECIDED

ACCEPTED = Path(__file__).with_name("accepted.jsonl")
BAR, BAR_BY_HAND, ACCEPTED_MAX = 0.85, 0.97, 0.05
CHANGES_LEAST = 10  # faults in changed lines; a share of fewer says little


def report(records: Sequence[Record], before: Sequence[Record] = (), accepted_file: Path = ACCEPTED) -> int:
    """Print survivors, errors and shares; the exit status: 1 if too few are noticed, or fewer than before."""
    accepted = read_accepted(accepted_file)
    _print_each(records, {fault.key: reason for fault, reason in accepted.items()})
    groups = {name: [each for each in records if _group(each) == name] for name in (*STRATA, BY_HAND)}
    for name, members in groups.items():
        if members:
            print(share_line(name, members))
    generated = [record for record in records if record.fault.operator != BY_HAND]
    keys = {fault.key for fault in accepted}
    excused = [each for each in generated if each.verdict.verdict == SURVIVED and each.fault.key in keys]
    failures = []
    if generated:
        print(share_line("total", generated))
    if share(generated) < BAR:
        failures.append(f"{100 * BAR:.0f} % must be noticed")
    if share(groups[BY_HAND]) < BAR_BY_HAND:
        failures.append(f"{100 * BAR_BY_HAND:.0f} % of those by hand must be noticed")
    if len(excused) > ACCEPTED_MAX * len(generated):
        failures.append(f"{len(excused)} survivors are accepted, must be {100 * ACCEPTED_MAX:.0f} % at most")
    failures += _lost(records, before)
    for failure in failures:
        print(f"failed: {failure}")
    return 1 if failures else 0


def report_of_changes(records: Sequence[Record]) -> int:
    """The same for faults in changed lines: 1 if ten or more were decided, and too few noticed for certain.

    The share of a handful varies, so the upper end of its interval counts.
    """
    decided = [record for record in records if record.verdict.verdict != UNDECIDED]
    _print_each(decided, {})
    print(share_line("changed lines", decided))
    print(f"{len(records) - len(decided)} more had no time")
    return 1 if len(decided) >= CHANGES_LEAST and wilson(*_counts(decided))[1] < BAR else 0


def share(records: Sequence[Record]) -> float:
    """The share noticed of what could be compiled; 1 of nothing."""
    noticed, count = _counts(records)
    return noticed / count if count else 1.0


def share_line(name: str, records: Sequence[Record]) -> str:
    """The share noticed with its interval, in words."""
    noticed, count = _counts(records)
    low, high = wilson(noticed, count)
    verdicts = [record.verdict.verdict for record in records]
    more = [(SURVIVED, "not"), (ERROR, "could not run"), (DROPPED, "did not compile")]
    return (
        f"{name:26}{noticed:4} of {count:3} noticed: {100 * share(records):5.1f} % "
        f"(95 %: {100 * low:.1f} to {100 * high:.1f})"
        + "".join(f", {verdicts.count(verdict)} {words}" for verdict, words in more if verdict in verdicts)
    )


def wilson(noticed: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson, JASA 22, 1927)."""
    if count == 0:
        return 0.0, 1.0
    z = 1.959964
    ratio, width = noticed / count, z * z / count
    middle = ratio + width / 2
    half = z * sqrt(ratio * (1 - ratio) / count + width / (4 * count))
    return max(0.0, (middle - half) / (1 + width)), min(1.0, (middle + half) / (1 + width))


def _print_each(records: Sequence[Record], reasons: dict[tuple[object, ...], str]) -> None:
    for record in records:
        if record.verdict.verdict == ERROR:
            print(f"\ntests could not run: {record.fault.label}\n{record.verdict.output}")
    print()
    for record in records:
        if record.verdict.verdict == SURVIVED:
            print(f"survived: {record.fault.label}")
            reason = reasons.get(record.fault.key)
            print(
                f"    accepted: {reason}" if reason else f"    {' '.join(record.verdict.tests) or 'no test'}"
            )


def _lost(records: Sequence[Record], before: Sequence[Record]) -> list[str]:
    """Faults that were noticed before and are not now."""
    now = {record.fault: record for record in records}
    noticed = [record for record in before if record.verdict.verdict == KILLED]
    lost = []
    for earlier, fault in zip(noticed, found_again([each.fault for each in noticed], now), strict=True):
        if fault is not None and now[fault].verdict.verdict not in (KILLED, DROPPED):
            lost.append(f"noticed before by {earlier.verdict.noticed_by}: {fault.label}")
    return lost


def _counts(records: Sequence[Record]) -> tuple[int, int]:
    verdicts = [record.verdict.verdict for record in records if record.verdict.verdict != DROPPED]
    return verdicts.count(KILLED), len(verdicts)


def _group(record: Record) -> str:
    return BY_HAND if record.fault.operator == BY_HAND else stratum_of(record.fault.file)

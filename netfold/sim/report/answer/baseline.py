"""The baseline of a comparison, and what makes runs less comparable with it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from netfold.errors import DataError
from netfold.sim.processor import note_of, recorded
from netfold.sim.report.answer.ranking import Entry, Group
from netfold.sim.results.folder import Run, load
from netfold.sim.results.summary import GOOD, kind
from netfold.spelling import names_hint


@dataclass(frozen=True)
class Baseline:
    """A run; with `variant`, that variant of it for all of its group."""

    run: Run
    variant: str = ""
    is_only: bool = False  # there is no other run

    @property
    def name(self) -> str:
        """The run, and the variant if one is wanted."""
        return f"{name_of(self.run)} {self.variant}".rstrip()

    def against(self, variant: Entry, group: Group) -> Entry | None:
        """The variant of this run to divide a group's variant by; None if this run has none of the group.

        It is the wanted one, or without a wanted one that of the same name, or else the group's baseline
        among those of this run.
        """
        mine = [one for one in self.run.summary["variants"] if any(one is other for other in group.members)]
        wanted = self.variant or ("" if self.is_only else variant["name"])
        same = next((one for one in mine if one["name"] == wanted), None)
        named = self.run.summary.get("baseline")
        return same or (Group(group.label, tuple(mine), named).baseline if mine else None)


def baseline_of(given: Path | None, loaded: Sequence[Run]) -> Baseline:
    """The baseline that is given: a folder, which wins; a run's number in the table; or a variant's name.

    Of a single run it is the baseline of each group, by default.

    Raises
    ------
    DataError
        There is no such folder, number or variant.
    """
    only = Baseline(loaded[0], is_only=len(loaded) == 1)
    if given is None:
        return only
    text = str(given)
    if not given.exists():
        for run in loaded:
            if text in _variants(run):
                return Baseline(run, text)
        if text.isdecimal():
            return replace(only, run=_numbered(text, loaded))
    if not given.exists() and given.name == text and text not in ("latest", "latest.txt"):
        names = list(dict.fromkeys(name for run in loaded for name in _variants(run)))
        raise DataError(
            f"--baseline {text}: there is no run folder and no variant of this name",
            names_hint(text, names, "variants"),
        )
    run = load(given)
    return only if run.path == loaded[0].path else Baseline(run)


def _variants(run: Run) -> list[str]:
    return [variant["name"] for variant in run.summary["variants"]]


def _numbered(text: str, loaded: Sequence[Run]) -> Run:
    """The run with this number in the table."""
    if len(text) > 9 or not 1 <= int(text) <= len(loaded):
        raise DataError(
            f"--baseline {text}: there is no run of this number",
            f"give 1{f' to {len(loaded)}' if len(loaded) > 1 else ''}, or a run folder",
        )
    return loaded[int(text) - 1]


def name_of(run: Run) -> str:
    """A run in tables and notes: "<scenario>/<folder>", or its label."""
    return run.label or f"{run.summary['scenario']}/{run.path.name}"


def require_comparable(runs: Sequence[Run], base: Run) -> None:
    """Require that all runs computed with the same instructions, where that is known.

    Raises
    ------
    DataError
        One has not.
    """
    right = recorded(base.circumstances)
    for run in runs:
        found = recorded(run.circumstances)
        if found is not None and right is not None and found.isa != right.isa:
            raise DataError(
                f"cannot compare {name_of(run)}, computed with {found.isa}, "
                f"with {name_of(base)}, computed with {right.isa}",
                "their results differ by the processor: run both on one processor, and without --native",
            )


def notes_on(run: Run, base: Baseline) -> list[str]:
    """Differences from the baseline's circumstances, and reasons not to rely on the results."""
    mine, theirs = _circumstances(run), _circumstances(base.run)
    notes = [
        f"{name_of(run)}: {what} {mine[what]}, the baseline has {theirs[what]}"
        for what in mine
        if mine[what] != theirs[what]
    ]
    if mine["scenario"] != theirs["scenario"]:
        notes = [
            f"{name_of(run)}: another scenario; variants that the baseline lacks are compared with its own "
            "baseline, if that has an equal workload"
        ]
    else:
        notes += [*_other_inputs(run, base.run), *([] if base.variant else _unmatched(run, base.run))]
    notes += _other_workers(run, base)
    notes += [f"{name_of(run)}: {note}" for note in note_of(run.circumstances)]
    if left := ", ".join(f"'{name}'" for name in run.summary.get("unfinished", ())):
        notes.append(f"{name_of(run)}: unfinished, {left} did not run to the end")
    kinds = {variant["name"]: kind(variant["verdict"]) for variant in run.summary["variants"]}
    if set(kinds.values()) - {*GOOD, "stuck"}:
        notes.append(f"{name_of(run)}: a check failed, do not rely on its numbers")
    for found, meaning in (
        ("stuck", "got stuck, the numbers are those of the finished steps"),
        ("approximate", "approximate, some elements are estimates without an error bound"),
    ):
        names = ", ".join(f"'{name}'" for name, one in kinds.items() if one == found)
        notes += [f"{name_of(run)}: {names} {meaning}"] if names else []
    return notes


def _other_inputs(run: Run, base: Run) -> list[str]:
    """One note for every named file whose content differs in the baseline."""
    mine, theirs = (
        {one["path"]: one["sha256"] for one in both.summary.get("inputs", ())} for both in (run, base)
    )
    return [
        f"{name_of(run)}: {path} with sha256 {mine[path][:12]}, the baseline has {theirs[path][:12]}"
        for path in mine
        if mine[path] != theirs.get(path, mine[path])
    ]


def _unmatched(run: Run, base: Run) -> list[str]:
    """One note on all variants that the baseline lacks."""
    names = [variant["name"] for variant in base.summary["variants"]]
    missing = [f"'{entry['name']}'" for entry in run.summary["variants"] if entry["name"] not in names]
    if not missing:
        return []
    what = f"variant{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
    return [f"{name_of(run)}: the baseline has no {what}, compared with its own baseline"]


def _other_workers(run: Run, base: Baseline) -> list[str]:
    """One note on all variants that have other workers than the baseline's of the same name."""
    theirs = {entry["name"]: entry["metrics"]["workers"] for entry in base.run.summary["variants"]}
    differing = [
        f"'{name}' has {mine}, '{name}' of the baseline {theirs[name]}"
        for entry in run.summary["variants"]
        if (mine := entry["metrics"]["workers"]) != theirs.get(name := entry["name"], mine)
    ]
    return [f"{name_of(run)}: other numbers of workers: {'; '.join(differing)}"] if differing else []


def _circumstances(run: Run) -> dict[str, str]:
    """Properties that two runs must share for their ratios to mean something, by their names in a note."""
    return {
        "scenario": run.summary["scenario"],
        "seed": str(run.summary["seed"]),
        "scenario file with sha256": hashlib.sha256(run.scenario_text).hexdigest()[:12],
        "--set": ", ".join(run.summary["sets"]) or "nothing",
        "netfold version": run.circumstances["version"],
    }

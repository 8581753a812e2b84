"""The baseline of a comparison, and what makes runs less comparable with it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netfold.sim.errors import DataError
from netfold.sim.results.reader import Run, load
from netfold.sim.results.verdicts import GOOD, kind
from netfold.spelling import names_hint


@dataclass(frozen=True)
class Baseline:
    """A run; with `variant`, only that variant of it."""

    run: Run
    variant: str = ""

    @property
    def name(self) -> str:
        """The run, and the variant if there is only one."""
        return f"{name_of(self.run)} {self.variant}".rstrip()

    def against(self, variant: dict[str, Any]) -> dict[str, Any]:
        """The variant to divide by: that of the same name, or the first if there is none."""
        candidates: list[dict[str, Any]] = self.run.summary["variants"]
        wanted = self.variant or variant["name"]
        return next((entry for entry in candidates if entry["name"] == wanted), candidates[0])


def baseline_of(given: Path | None, loaded: Sequence[Run]) -> Baseline:
    """The baseline that is given: a folder, which wins; a run's number in the table; or a variant's name.

    Of a single run it is a variant, the first by default.

    Raises
    ------
    DataError
        There is no such folder, number or variant.
    """
    only = str(loaded[0].summary["variants"][0]["name"]) if len(loaded) == 1 else ""
    if given is None:
        return Baseline(loaded[0], only)
    text = str(given)
    if not given.exists():
        for run in loaded:
            if text in _variants(run):
                return Baseline(run, text)
        if text.isdecimal():
            return Baseline(_numbered(text, loaded), only)
    if not given.exists() and given.name == text and text not in ("latest", "latest.txt"):
        names = list(dict.fromkeys(name for run in loaded for name in _variants(run)))
        raise DataError(
            f"--baseline {text}: there is no run folder and no variant of this name",
            names_hint(text, names, "variants"),
        )
    run = load(given)
    return Baseline(run, only if run.path == loaded[0].path else "")


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
    """A run in tables and notes: "<scenario>/<folder>"."""
    return f"{run.summary['scenario']}/{run.path.name}"


def notes_on(run: Run, base: Baseline) -> list[str]:
    """Differences from the baseline's circumstances, and reasons not to rely on the results."""
    mine, theirs = _circumstances(run), _circumstances(base.run)
    notes = [
        f"{name_of(run)}: {what} {mine[what]}, the baseline has {theirs[what]}"
        for what in mine
        if mine[what] != theirs[what]
    ]
    if mine["scenario"] != theirs["scenario"]:
        first = base.run.summary["variants"][0]["name"]
        notes = [
            f"{name_of(run)}: another scenario; "
            f"variants that the baseline lacks are compared with its '{first}'"
        ]
    else:
        notes += [*_other_inputs(run, base.run), *([] if base.variant else _unmatched(run, base.run))]
    notes += _other_workers(run, base)
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
    return [f"{name_of(run)}: the baseline has no {what}, compared with '{names[0]}'"]


def _other_workers(run: Run, base: Baseline) -> list[str]:
    """One note on all variants whose number of workers differs from the baseline's."""
    differing = [
        f"'{entry['name']}' has {mine}, '{against['name']}' of the baseline {theirs}"
        for entry in run.summary["variants"]
        if (mine := entry["metrics"]["workers"])
        != (theirs := (against := base.against(entry))["metrics"]["workers"])
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

"""Makes the matrix: all codecs and collectives that are registered, or those that are named."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from netfold.errors import MissingKeyError, NetfoldError, ScenarioError
from netfold.homomorphic.codecs import codec_kinds
from netfold.sim.collectives.registry import COLLECTIVES
from netfold.sim.matrix.cells import REFUSED, STEPS, Bench, Cell, Column, Row
from netfold.sim.results.summary import GOOD, kind
from netfold.sim.run.run import compile_engine, is_cold
from netfold.sim.study.options import read_codec, read_codecs
from netfold.spelling import names_hint
from netfold.switch.profiles import PROFILES, Profile
from netfold.units import UnitError, format_fraction, parse_fraction

Progress = Callable[[str, float, float], None]


@dataclass(frozen=True)
class Wanted:
    """What a matrix is made of."""

    codecs: Sequence[str] = ()  # KIND or KIND:OPTION=VALUE,…; none: all, with all their settings
    collectives: Sequence[str] = ()  # none: all
    loss: str = "1%"  # of packets on each link, in the second run of every cell
    workers: int = 4
    switch: str = ""  # profile; empty: for every cell one that can
    seed: int = 1


@dataclass(frozen=True)
class Matrix:
    """All cells, codec by codec, and what they have in common."""

    wanted: Wanted
    rows: tuple[str, ...]  # codecs
    columns: tuple[str, ...]  # collectives, with their choices
    cells: tuple[Cell, ...]

    @property
    def failed(self) -> list[Cell]:
        """Runs with a check that does not hold, or that got stuck."""
        return [cell for cell in self.cells if cell.verdict != REFUSED and kind(cell.verdict) not in GOOD]

    def as_dict(self) -> dict[str, Any]:
        """The object that `netfold codecs matrix --json` prints."""
        return {
            "workers": self.wanted.workers,
            "steps": STEPS,
            "seed": self.wanted.seed,
            "cells": [asdict(cell) for cell in self.cells],
        }


def make_matrix(wanted: Wanted, progress: Progress) -> Matrix:
    """Run every cell without loss and with it.

    Raises
    ------
    ScenarioError, NetfoldError
        A codec, collective, switch or loss that cannot be used.
    DataError
        The training data is not available.
    """
    rows, columns = rows_of(wanted.codecs), columns_of(wanted.collectives)
    bench = Bench(wanted.workers, _switches(wanted.switch), _loss(wanted.loss), wanted.seed)
    if is_cold():
        progress("compiling kernels (once, about a minute)", 0, len(rows))
        compile_engine()
    cells = []
    for done, row in enumerate(rows):
        progress(row.name, done, len(rows))
        cells += _with_others([cell for column in columns for cell in bench.cells(row, column)])
    names = tuple(row.name for row in rows), tuple(column.name for column in columns)
    return Matrix(replace(wanted, loss=bench.loss), *names, tuple(cells))


def rows_of(texts: Sequence[str] = ()) -> list[Row]:
    """The codecs that are named; without names all, with all settings that they declare."""
    if texts:
        return [Row(*named) for named in read_codecs(texts)]
    found = []
    for name, codec in codec_kinds().items():
        for setting in getattr(codec, "settings", ("",)):
            text = f"{name}:{setting}" if setting else name
            try:
                found.append(Row(*read_codec(text)))
            except ScenarioError as error:
                hint = error.hint
                if isinstance(error, MissingKeyError):
                    hint = f"name it with its options, {name}:OPTION=VALUE, or give its class `settings`"
                found.append(Row(text, None, (f"{text}: {error.message}", hint)))
    return found


def columns_of(kinds: Collection[str] = ()) -> list[Column]:
    """The collectives that are named, or all, each with all its choices."""
    for name in kinds:
        if name not in COLLECTIVES:
            raise NetfoldError(f"there is no collective {name!r}", names_hint(name, COLLECTIVES))
    return [
        Column(spec.kind, choice, keys)
        for spec in COLLECTIVES.values()
        if not kinds or spec.kind in kinds
        for choice, keys in spec.choices().items()
    ]


def _switches(name: str) -> list[str]:
    """The profile that is named; else all, those that can do least first."""
    if name and name not in PROFILES:
        raise NetfoldError(f"there is no switch profile {name!r}", names_hint(name, PROFILES))
    return [name] if name else [one.name for one in sorted(PROFILES.values(), key=_ability)]


def _ability(profile: Profile) -> tuple[int, bool, bool]:
    return len(profile.merges), profile.is_lossless, profile.has_timers


def _loss(text: str) -> str:
    """The share as scenarios write it; empty if nothing is lost."""
    try:
        share = parse_fraction(text)
    except UnitError as error:
        raise NetfoldError(f"loss: {error.message}", error.hint) from None
    return format_fraction(share) if share else ""


def _with_others(cells: Sequence[Cell]) -> list[Cell]:
    """The cells of a codec; where loss is refused, the hint names the columns that recover from it."""
    able = [cell.column for cell in cells if cell.loss and kind(cell.verdict) in GOOD]
    runs = {cell.column for cell in cells if not cell.loss and kind(cell.verdict) in GOOD}
    return [
        replace(cell, hint=f"{cell.hint}, or one of {', '.join(able)}")
        if cell.loss and cell.verdict == REFUSED and cell.column in runs and able
        else cell
        for cell in cells
    ]

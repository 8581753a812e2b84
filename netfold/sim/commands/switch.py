"""The commands `netfold switch …`: list switch profiles, and fit a program to one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from netfold.errors import NetfoldError
from netfold.sim.commands.terminal import print_json, print_line, print_table
from netfold.spelling import names_hint

if TYPE_CHECKING:
    from netfold.switch.profiles import Profile

EXIT_DOES_NOT_FIT = 1
switch = typer.Typer(help="List switch profiles, and check whether a program fits one.", no_args_is_help=True)


@switch.command("profiles")
def switch_profiles(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="A profile, or a YAML file with one.")] = "",
) -> None:
    """List the switch profiles, or all numbers of one with their sources."""
    from netfold.sim.commands.switch_tables import profile_table, profiles_table

    print_table(profile_table(_profile(name)) if name else profiles_table())


@switch.command("fit")
def switch_fit(
    program: Annotated[
        str, typer.Argument(metavar="PROGRAM", help="Name of a program; an unknown name lists all.")
    ],
    profile: Annotated[str, typer.Option(metavar="P", help="A profile, or a YAML file with one.")],
    workers: Annotated[int | None, typer.Option(min=1, help="Workers; 8 by default.")] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Slots of all jobs together.")] = None,
    words: Annotated[int | None, typer.Option(min=1, help="32-bit words per packet.")] = None,
    per_pass: Annotated[
        int | None, typer.Option(min=1, help="Words that one pass adds, on switches with stages.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a table.")
    ] = False,
) -> None:
    """Place a program on a switch, stage by stage. Options left out have the program's usual values."""
    from dataclasses import replace

    from netfold.sim.commands.switch_tables import as_dict, fit_table, refusal_dict
    from netfold.switch.fit import FitError, fit
    from netfold.switch.profiles import PIPELINE
    from netfold.switch.programs import programs

    if program not in programs():
        raise NetfoldError(f"there is no program {program!r}", names_hint(program, programs()))
    kind = _profile(profile)
    if per_pass is not None and kind.kind != PIPELINE:
        message = f"--per-pass {per_pass}: {kind.name} has no stages, one pass adds all words of a packet"
        raise NetfoldError(message, "remove --per-pass")
    given: dict[str, Any] = {"workers": workers, "slots": slots, "words": words, "words_per_pass": per_pass}
    demand = replace(
        programs()[program].released, **{key: value for key, value in given.items() if value is not None}
    )
    try:
        found = fit(kind, program, demand)
    except FitError as error:
        print_json(refusal_dict(error)) if as_json else print_line(
            f"does not fit: {error.message}\n  {error.hint}"
        )
        raise typer.Exit(EXIT_DOES_NOT_FIT) from None
    print_json(as_dict(found)) if as_json else print_table(fit_table(found))


def _profile(name: str) -> Profile:
    from netfold.sim.scenario.variant_keys import SUFFIXES, read_profile
    from netfold.switch.profiles import PROFILES

    if name.endswith(SUFFIXES):
        return read_profile(name)
    if name not in PROFILES:
        hint = f"{names_hint(name, PROFILES)}; or give a YAML file with one"
        raise NetfoldError(f"there is no switch profile {name!r}", hint)
    return PROFILES[name]

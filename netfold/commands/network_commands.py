"""The commands `netfold switch …` and `netfold topology …`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netfold.commands.terminal import (
    JsonOrTable,
    JsonOrText,
    print_json,
    print_line,
    print_table,
    print_wrapped,
    show,
)
from netfold.errors import NetfoldError, names_hint

if TYPE_CHECKING:
    from netfold.sim.studies.topology_study import NamedNetwork
    from netfold.switch.profiles import Profile


EXIT_DOES_NOT_FIT = 1
switch = typer.Typer(
    help="List switch profiles and programs, and check whether a program fits a profile.",
    no_args_is_help=True,
)


@switch.command("profiles")
def switch_profiles(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="A profile, or a YAML file with one.")] = "",
) -> None:
    """List the switch profiles, or all numbers of one with their sources."""
    from netfold.commands.listings import profile_table, profiles_table

    print_table(profile_table(_profile(name)) if name else profiles_table())


@switch.command("programs")
def switch_programs() -> None:
    """List the switch programs, and the profiles whose switches can run each at some size."""
    from netfold.commands.listings import programs_table

    print_table(programs_table())


@switch.command("fit")
def switch_fit(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help="A program, of netfold switch programs.")],
    profile: Annotated[str, typer.Option(metavar="P", help="A profile, or a YAML file with one.")],
    workers: Annotated[int | None, typer.Option(min=1, help="Workers; 8 by default.")] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Slots of all jobs together.")] = None,
    words: Annotated[int | None, typer.Option(min=1, help="32-bit words per packet.")] = None,
    per_pass: Annotated[
        int | None, typer.Option(min=1, help="Words that one pass adds, on switches with stages.")
    ] = None,
    as_json: JsonOrTable = False,
) -> None:
    """Place a program on a switch, stage by stage. Options left out have the program's usual values."""
    from dataclasses import replace

    from netfold.commands.listings import as_dict, fit_table, refusal_dict
    from netfold.switch.fit import FitError, fit
    from netfold.switch.profiles import PIPELINE
    from netfold.switch.program import programs

    if program not in programs():
        raise NetfoldError(f"there is no program {program!r}", names_hint(program, programs()))
    profile_model = _profile(profile)
    if per_pass is not None and profile_model.kind != PIPELINE:
        message = (
            f"--per-pass {per_pass}: {profile_model.name} has no stages, one pass adds all words of a packet"
        )
        raise NetfoldError(message, "remove --per-pass")
    options: dict[str, Any] = {"workers": workers, "slots": slots, "words": words, "words_per_pass": per_pass}
    demand = replace(
        programs()[program].released, **{key: value for key, value in options.items() if value is not None}
    )
    try:
        placement = fit(profile_model, program, demand)
    except FitError as error:
        print_json(refusal_dict(error)) if as_json else print_line(
            f"does not fit: {error.message}\n  {error.hint}"
        )
        raise typer.Exit(EXIT_DOES_NOT_FIT) from None
    print_json(as_dict(placement)) if as_json else print_table(fit_table(placement))


def _profile(name: str) -> Profile:
    from netfold.sim.scenario.profile_keys import SUFFIXES, read_profile
    from netfold.switch.profiles import PROFILES

    if name.endswith(SUFFIXES):
        return read_profile(name)
    if name not in PROFILES:
        hint = f"{names_hint(name, PROFILES)}; or give a YAML file with one"
        raise NetfoldError(f"there is no switch profile {name!r}", hint)
    return PROFILES[name]


# The commands `netfold topology …`: list kinds, show, draw, measure and export topologies.


topology = typer.Typer(
    help="List kinds of topologies; show, draw, measure and export networks without a run.",
    no_args_is_help=True,
)

Network = Annotated[
    str,
    typer.Argument(
        metavar="FILE|KIND",
        help="Scenario file (- for standard input), graph file (.json, .graphml, .gml), or kind of topology.",
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change a value: topology.rate=10Gbps of a scenario, k=8 of a kind.",
    ),
]
Variants = Annotated[
    list[str] | None,
    typer.Option("--variant", metavar="NAME", help="Only this variant; can be repeated."),
]


@topology.command("list")
def topology_list(
    kind: Annotated[
        str, typer.Argument(metavar="[KIND]", help="Only this kind, with the closed forms of its figures.")
    ] = "",
    as_json: JsonOrText = False,
) -> None:
    """List the kinds of topologies with their keys, or all about one."""
    from dataclasses import asdict

    from netfold.sim.studies.topology_study import listing

    kinds = {description.kind: description for description in listing()}
    if kind and kind not in kinds:
        raise NetfoldError(f"there is no kind of topology {kind!r}", names_hint(kind, kinds, "kinds"))
    chosen = [kinds[kind]] if kind else list(kinds.values())
    if as_json:
        print_json({"kinds": [asdict(description) for description in chosen]})
        return
    for family in chosen:
        print_wrapped(f"{family.kind}: {family.meaning}")
        for key in family.keys:
            default = "" if key.is_required else f"={json.dumps(key.default)}"
            print_wrapped(f"{key.name}{default}: {key.meaning}", "  ")
        if kind and family.closed_forms:
            print_line("\n" + family.closed_forms)


@topology.command("show")
def topology_show(
    network: Network,
    sets: Sets = None,
    variant: Variants = None,
    draw: Annotated[
        str | None,
        typer.Option(metavar="DIR|FILE.svg", help="Draw every network as SVG, into a folder or this file."),
    ] = None,
) -> None:
    """Show the size, distances and bisection bandwidth of networks, and draw them.

    \b
    netfold topology show scenarios/06-two-racks.yaml
    netfold topology show leaf_spine --set leaves=4 --set spines=2 --set hosts_per_leaf=8 --draw two.svg
    """
    from netfold.sim.studies.topology_study import draw_into, size_table

    networks = _networks(network, sets, variant)
    print_table(size_table(networks))
    for path in draw_into(networks, draw) if draw else ():
        print_line(path)


@topology.command("measure")
def topology_measure(
    network: Network,
    sets: Sets = None,
    variant: Variants = None,
    size: Annotated[
        str, typer.Option("--bytes", metavar="SIZE", help="Gradient of a worker, for the estimates.")
    ] = "100MB",
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Workers, rack by rack; by default those of the scenario, else one on every host."
        ),
    ] = None,
    prices: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Prices and powers of parts; by default the scenario's, else netfold's."
        ),
    ] = None,
    without_any: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            help="Measure what losing any one of these switches or links costs: 'spine*', 'leaf0-*'.",
        ),
    ] = None,
    as_json: JsonOrText = False,
) -> None:
    """Measure networks without simulating them, and estimate the all-reduce time of every collective.

    Of a scenario, its own collectives are estimated as it sets them; others have their defaults.
    """
    from netfold.sim.scenario.profile_keys import read_prices
    from netfold.sim.studies.topology_study import measurements

    size_bytes = _size_of(size)
    price_table = None if prices is None else read_prices(prices)
    networks = _networks(network, sets, variant)
    reporter = partial(typer.echo, err=True)
    show(measurements(networks, size_bytes, workers, reporter, price_table, without_any), as_json)


@topology.command("size")
def topology_size(
    hosts: Annotated[int, typer.Option(min=2, help="Hosts; a network may have a tenth more.")],
    price: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="What a network may cost in US dollars: 1.2M, 800k.")
    ] = None,
    cost_of: Annotated[
        str | None,
        typer.Option(
            metavar="'KIND KEY=VALUE …'",
            help="A network that all may cost as much as: 'leaf_spine leaves=16 spines=8 hosts_per_leaf=16'.",
        ),
    ] = None,
    bisection: Annotated[
        str | None, typer.Option(metavar="RATE", help="The least bisection of a network: 12.8Tbps.")
    ] = None,
    rate: Annotated[str, typer.Option(metavar="RATE", help="Rate of all links.")] = "100Gbps",
    prices: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="YAML file with prices and powers; by default netfold's."),
    ] = None,
    as_json: JsonOrText = False,
) -> None:
    """Size networks of every kind for a number of hosts, so that they can be compared.

    \b
    With --price or --cost-of: the one with the largest bisection for that money.
    With --bisection: the cheapest that has it.
    """
    from netfold.sim.studies.network_sizes import size_networks

    aim = {"price": price, "cost_of": cost_of, "bisection": bisection}
    show(size_networks(hosts, **aim, rate=rate, prices=prices), as_json)


@topology.command("export")
def topology_export(
    network: Network,
    form: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="json, graphml, gml or dot.")
    ] = "json",
    sets: Sets = None,
    variant: Variants = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="File; standard output by default.")
    ] = None,
) -> None:
    """Write a network as node-link JSON, GraphML, GML or DOT."""
    from netfold.sim.studies.topology_study import write
    from netfold.topologies.topology_files import export

    networks = _networks(network, sets, variant)
    if len(networks) > 1:
        names = ", ".join(choice.name for choice in networks)
        raise NetfoldError(f"{network} has {len(networks)} networks", f"choose one with --variant: {names}")
    text = export(networks[0].graph, form)
    print_line(text.rstrip("\n")) if out is None else print_line(write(out, text.encode()))


def _size_of(text: str) -> int:
    """The size of a gradient that an option gives."""
    from netfold.units import SIZE, UnitError

    try:
        size_bytes = SIZE.parse(text)
    except UnitError as error:
        raise NetfoldError(f"--bytes: {error.message}", error.hint) from None
    if size_bytes == 0:
        raise NetfoldError(f"--bytes: must be more than 0B, found {text!r}", "for example --bytes 100MB")
    return size_bytes


def _networks(network: str, sets: list[str] | None, variants: list[str] | None) -> tuple[NamedNetwork, ...]:
    from netfold.sim.studies.topology_study import networks_of

    return networks_of(network, sets or (), variants or ())

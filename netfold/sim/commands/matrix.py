"""The command `netfold codecs matrix`: every codec on every collective."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Annotated

import typer

from netfold.sim.commands.terminal import print_json, print_line, print_table, progress_bar

EXIT_CHECK_FAILED = 1


def codecs_matrix(
    kinds: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CODEC]...", help="KIND or KIND:OPTION=VALUE,…; all by default."),
    ] = None,
    collectives: Annotated[
        list[str] | None,
        typer.Option(
            "--collective", metavar="KIND", help="Only this collective; can be repeated; all by default."
        ),
    ] = None,
    loss: Annotated[
        str, typer.Option(metavar="SHARE", help="Packets that every link loses in the second run of a cell.")
    ] = "1%",
    workers: Annotated[int, typer.Option(min=1, max=4096, help="Workers.")] = 4,
    switch: Annotated[
        str,
        typer.Option(
            metavar="PROFILE",
            help="Profile of the switch; by default the one that can do least of those that can.",
        ),
    ] = "",
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of all random draws.")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a table.")
    ] = False,
    as_page: Annotated[bool, typer.Option("--markdown", help="Print the page docs/matrix.md.")] = False,
) -> None:
    """Run every codec on every collective, without loss and with it, or say why it is refused.

    \b
    netfold codecs matrix topk majority --collective in_network --switch tofino1

    Each cell trains a small model for a few steps on a star. The exit status is 1 if a cell that ran did not
    pass all checks. Nothing is written.
    """
    if as_json and as_page:
        raise typer.BadParameter("--json and --markdown are both given; leave out one")
    from netfold.sim.studies.matrix import Wanted, make_matrix, matrix_page, matrix_table

    wanted = Wanted(tuple(kinds or ()), tuple(collectives or ()), loss, workers, switch, seed)
    with progress_bar() if sys.stderr.isatty() else nullcontext(lambda *_: None) as progress:
        found = make_matrix(wanted, progress)
    if as_json:
        print_json(found.as_dict())
    elif as_page:
        print_line(matrix_page(found).removesuffix("\n"))
    else:
        print_table(matrix_table(found))
    if found.failed:
        raise typer.Exit(EXIT_CHECK_FAILED)

"""What a refusal advises, followed: the cells that it names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from ruamel.yaml import YAML

from netfold.sim.collectives.registry import COLLECTIVES
from netfold.sim.matrix.cells import REFUSED, Cell

Run = Callable[[str, str], Iterable[Cell]]  # the cells of a codec on a collective
# Where a hint names programs of in_network: `tree` is a program there, and elsewhere a collective.
_PROGRAMS = re.compile(r"(?<=\bin_network )\w+|\bprograms?\b(?:(?!\bcollective)[^;])*")
_CHOICES = {choice: kind for kind, spec in COLLECTIVES.items() for choice in spec.choices() if choice}


def ignored(cell: Cell, others: Sequence[Cell], run: Run) -> list[str]:
    """Parts of a refusal's advice that do not work; that there is no advice is one, too.

    `others` are all cells of the codec. What is refused without loss, too, has advice for a network without
    loss; with loss some of it has to work.
    """
    found = _advised(cell, others, run)
    if not found:
        return [f"nothing that works is named: {cell.hint!r}"]
    refused = {one.loss for one in others if one.column == cell.column and one.verdict == REFUSED}
    failed = [name for name, losses in found.items() if min(refused) not in losses]
    if not any(cell.loss in losses for losses in found.values()):
        failed.append(f"nothing of it works with loss {cell.loss}")
    return failed


def _advised(cell: Cell, others: Sequence[Cell], run: Run) -> dict[str, set[str]]:
    """What a hint names: collectives, their choices and codecs; and the losses with which each works.

    A collective works if one of its choices does.
    """
    codecs = re.findall(r"\{kind: [^}]*\}", cell.hint)
    text = re.sub(r"\{kind: [^}]*\}", "", cell.hint)
    programs = set(re.findall(r"\w+", " ".join(_PROGRAMS.findall(text))))
    words = set(re.findall(r"\w+", _PROGRAMS.sub(" ", text)))
    ran = [one for one in others if one.verdict != REFUSED]
    found = {
        f"choice {name}": {one.loss for one in ran if (one.collective, one.choice) == (kind, name)}
        for name, kind in _CHOICES.items()
        if name in programs or (name in words and name not in COLLECTIVES)
    }
    for kind in words & COLLECTIVES.keys():
        found[f"collective {kind}"] = {one.loss for one in ran if one.collective == kind}
    for codec in codecs:
        cells = [one for one in run(_named(codec), cell.collective) if one.choice == cell.choice]
        found[f"codec {codec}"] = {one.loss for one in cells if one.verdict == "pass"}
    return found


def _named(text: str) -> str:
    """KIND:OPTION=VALUE,… of a codec as a scenario writes it."""
    section = YAML(typ="safe").load(text)
    options = ",".join(f"{key}={value}" for key, value in section.items() if key != "kind")
    return f"{section['kind']}:{options}" if options else str(section["kind"])

"""Aggregation protocols: one file each, with its specification and the effect of one packet on registers."""

# Importing a program's module registers it.
from netfold.switch.program import declare, default_program, formats, names_of, programs, runnable
from netfold.switch.programs import atp, inca, switchml, timed, tree

__all__ = [
    "atp",
    "declare",
    "default_program",
    "formats",
    "inca",
    "names_of",
    "programs",
    "runnable",
    "switchml",
    "timed",
    "tree",
]

"""All deliberate faults."""

from __future__ import annotations

from importlib import import_module

from tests.mutants.mutant import Harmless, Mutant

FOLDERS = (
    "engine",
    "links",
    "network",
    "atp",
    "switch",
    "homomorphic",
    "checks",
    "results",
    "scenario",
    "workload",
    "capture",
    "step",
    "topologies",
    "measures",
    "models",
    "routing",
    "collectives",
    "contributions",
    "training",
    "sasg",
    "bird",
    "count_sketch",
    "torus",
    "composed",
    "switched",
    "marsit",
    "matrix",
    "fusion",
    "generators",
    "answer",
    "sweeps",
    "trees",
    "loop",
    "devices",
    "hosts",
    "torch",
    "text",
    "jobs",
    "checkpoint",
    "schedules",
)


def list_of(folder: str) -> list[Mutant]:
    """The faults of one list."""
    found: list[Mutant] = import_module(f"{__name__}.{folder}").MUTANTS
    return found


def all_mutants() -> list[Mutant]:
    """Every fault of every list, in order; its switch is its place, from 1."""
    return [mutant for folder in FOLDERS for mutant in list_of(folder)]


def all_harmless() -> list[Harmless]:
    """Every change that changes nothing that can be seen, with the reason."""
    lists = [import_module(f"{__name__}.{folder}") for folder in FOLDERS]
    return [one for module in lists for one in getattr(module, "HARMLESS", [])]

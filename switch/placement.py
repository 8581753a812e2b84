"""Register arrays into the stages of a pipeline.

Rules of Tofino's compiler (p4lang/p4c, backends/tofino/bf-p4c/mau): an array lies in one stage, in a stateful
ALU of its own; it takes whole SRAM blocks and one spare, and as many map RAMs; what decides about it must
have been read in a stage before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from netfold.switch.limits import Profile
from netfold.switch.program import Program, Register


class Part(NamedTuple):
    """Some of the arrays of a register that lie in one stage."""

    name: str
    arrays: int


@dataclass(frozen=True)
class Stage:
    """What lies in one stage; a register array takes as many map RAMs as SRAM blocks."""

    parts: tuple[Part, ...]
    blocks: int

    @property
    def salus(self) -> int:
        """Stateful ALUs in use."""
        return sum(part.arrays for part in self.parts)


@dataclass(frozen=True)
class Placement:
    """Stages in order, and how many arrays of each register found no place."""

    stages: tuple[Stage, ...]
    left: Mapping[str, int]


def blocks_of(register: Register, profile: Profile) -> int:
    """SRAM blocks of one array: rows of 128 bits hold whole entries, and every array has spare blocks."""
    entries_per_row = profile.block_row_bits // register.bits
    return -(-register.entries // (profile.block_rows * entries_per_row)) + profile.spare_blocks


def place(program: Program, profile: Profile) -> Placement:
    """Fill stage after stage with what may come next, in the order in which the program declares it."""
    left = {register.name: register.count for register in program.registers}
    stages = []
    for _ in range(profile.stages):
        done = {name for name, count in left.items() if count == 0}
        ready = [register for register in program.registers if done.issuperset(register.after)]
        stages.append(_fill(ready, left, profile))
    while stages and not stages[-1].parts:
        stages.pop()
    return Placement(tuple(stages), {name: count for name, count in left.items() if count})


def _fill(ready: list[Register], left: dict[str, int], profile: Profile) -> Stage:
    """One stage; takes what it places out of `left`."""
    salus = profile.salus_per_stage
    free_blocks = min(profile.sram_blocks_per_stage, profile.map_rams_per_stage)
    parts, taken = [], 0
    for register in ready:
        blocks = blocks_of(register, profile)
        count = min(left[register.name], salus, (free_blocks - taken) // blocks)
        if count:
            parts.append(Part(register.name, count))
            left[register.name] -= count
            salus -= count
            taken += count * blocks
    return Stage(tuple(parts), taken)

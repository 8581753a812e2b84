"""Placement of register arrays in the stages of a pipeline.

Rules of Tofino's compiler (p4lang/p4c, backends/tofino/bf-p4c/mau): an array lies in one stage, with its own
stateful ALU; it takes whole SRAM blocks and one spare, and as many map RAMs; registers that decide about
it must have been read in an earlier stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from netfold.switch.limits import Profile
from netfold.switch.program import Program, Register


class PlacedArrays(NamedTuple):
    """The arrays of one register that lie in one stage."""

    name: str
    arrays: int


@dataclass(frozen=True)
class PipelineStage:
    """The contents of one stage; a register array takes as many map RAMs as SRAM blocks."""

    parts: tuple[PlacedArrays, ...]
    blocks: int

    @property
    def salus(self) -> int:
        """Stateful ALUs in use."""
        return sum(part.arrays for part in self.parts)


@dataclass(frozen=True)
class Placement:
    """Stages in order, and the number of arrays of each register that did not fit."""

    stages: tuple[PipelineStage, ...]
    left: Mapping[str, int]


def blocks_of(register: Register, profile: Profile) -> int:
    """SRAM blocks of one array: rows of 128 bits hold whole entries, and every array has spare blocks."""
    entries_per_row = profile.block_row_bits // register.bits
    return -(-register.entries // (profile.block_rows * entries_per_row)) + profile.spare_blocks


def place(program: Program, profile: Profile) -> Placement:
    """Fill stage after stage with the arrays that may come next, in the order of declaration."""
    left = {register.name: register.count for register in program.registers}
    stages = []
    for _ in range(profile.stages):
        done = {name for name, count in left.items() if count == 0}
        ready = [register for register in program.registers if done.issuperset(register.after)]
        stages.append(_fill(ready, left, profile))
    while stages and not stages[-1].parts:
        stages.pop()
    return Placement(tuple(stages), {name: count for name, count in left.items() if count})


def _fill(ready: list[Register], left: dict[str, int], profile: Profile) -> PipelineStage:
    """Fill one stage; removes the placed arrays from `left`."""
    salus = profile.salus_per_stage
    free_blocks = min(profile.sram_blocks_per_stage, profile.map_rams_per_stage)
    parts, taken = [], 0
    for register in ready:
        blocks = blocks_of(register, profile)
        count = min(left[register.name], salus, (free_blocks - taken) // blocks)
        if count:
            parts.append(PlacedArrays(register.name, count))
            left[register.name] -= count
            salus -= count
            taken += count * blocks
    return PipelineStage(tuple(parts), taken)

"""INCA (SophiaLi06/CS243-INCA, a forerunner of THC): 64 words a pass, one in every entry of 64 bits.

The engine does not run it: its layout shows the use of a pipeline with more stages. It follows the published
behaviour; headers are assumed to be as long as SwitchML's over UDP.
"""

from __future__ import annotations

from netfold.kinds import register
from netfold.switch.program import UDP_256, UDP_1024, VALUES, Demand, Program, ProgramSpec, Register

WORDS_PER_PASS = 64


def _layout(spec: ProgramSpec, demand: Demand) -> Program:
    per_pass = min(demand.words_per_pass or WORDS_PER_PASS, demand.words)
    registers = (
        Register("round", demand.slots, 32),
        Register("counter", demand.slots, 32, after=("round",)),
        Register(VALUES, demand.slots, 64, after=("counter",), count=per_pass),
    )
    return Program(spec, demand, registers, per_pass, repeats=-(-demand.words // per_pass))


INCA = register(
    ProgramSpec(
        name="inca",
        title="INCA",
        summary="64 words a pass",
        machine=None,
        layout=_layout,
        released=Demand(workers=8, slots=20_479, words=64),
        adder_bits=(32,),  # the released program's only width
        frames=(UDP_256, UDP_1024),
    )
)

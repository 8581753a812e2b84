"""What each program asks of a switch.

`inca` is no program of netfold: its declaration shows what a pipeline with more stages is good for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from netfold.homomorphic.codec import Merge
from netfold.spelling import names_hint
from netfold.switch.program import VALUES, Demand, Program, Register
from netfold.switch.registers import CHILDREN_MAX

VERSIONS = 2  # of every slot: one may be read again while the other fills
FOLDED_WORDS, FOLDED_PIPES = 256, 4
QUEUE_PAIRS_MAX = 512  # of a worker
ATP_WORDS_PER_PASS, INCA_WORDS_PER_PASS = 31, 64

# Headers up to the words, the largest that a packet can have.
_ROCE_BYTES = 14 + 20 + 8 + 12 + 16 + 4  # Ethernet, IPv4, UDP, BTH, RETH, immediate
_UDP_BYTES = 14 + 20 + 8 + 8 + 2  # Ethernet, IPv4, UDP, SwitchML's header and exponents
_ATP_BYTES = 14 + 20 + 14 + 12  # Ethernet, IPv4, ATP's header and trailer


class UnknownProgramError(ValueError):
    """A program that is not declared; the message names it, its like, and all there are."""


def switchml(demand: Demand) -> Program:
    """SwitchML as released (p4lang/p4app-switchML, p4/): two words an entry, two versions a slot.

    256 words are folded over the four pipelines of the chip, other payloads take one pass.
    """
    per_pass, pipes = _folded(demand)
    rows = VERSIONS * demand.slots
    return Program(
        name="switchml",
        title="SwitchML",
        demand=demand,
        registers=(
            Register("receiver", CHILDREN_MAX * QUEUE_PAIRS_MAX, 64, lanes=2),  # PSN and slot of a message
            Register("bitmap", demand.slots, 64, lanes=2, after=("receiver",)),  # of both versions
            Register("counter", rows, 32, after=("bitmap",)),
            Register("exponents", rows, 16, lanes=2, after=("bitmap",)),
            Register(VALUES, rows, 64, lanes=2, after=("counter",), count=-(-per_pass // 2)),
        ),
        header_bytes=_ROCE_BYTES,
        words_per_pass=per_pass,
        pipes=pipes,
    )


def tree(demand: Demand) -> Program:
    """A slot that forgets when it is complete, for networks that lose nothing (after SHARP, COM-HPC 2016)."""
    per_pass, pipes = _folded(demand)
    return Program(
        name="tree",
        title="the tree program",
        demand=demand,
        registers=(
            Register("bitmap", demand.slots, 32),
            Register("counter", demand.slots, 32, after=("bitmap",)),
            Register(VALUES, demand.slots, 64, lanes=2, after=("counter",), count=-(-per_pass // 2)),
        ),
        header_bytes=_ROCE_BYTES,
        words_per_pass=per_pass,
        pipes=pipes,
    )


def timed(demand: Demand) -> Program:
    """Slots that answer with what they have when their timer ends (after Trio-ML, SIGCOMM 2022)."""
    per_pass, pipes = _folded(demand)
    rows = VERSIONS * demand.slots
    return Program(
        name="timed",
        title="the timed program",
        demand=demand,
        registers=(
            Register("turn", rows, 32),
            Register("bitmap", rows, 32, after=("turn",)),
            Register("deadline", rows, 64, lanes=2, after=("turn",)),
            Register("emitted", rows, 8, after=("bitmap",)),
            Register(VALUES, rows, 64, lanes=2, after=("emitted",), count=-(-per_pass // 2)),
        ),
        header_bytes=_UDP_BYTES,
        words_per_pass=per_pass,
        pipes=pipes,
        needs_timers=True,
    )


def atp(demand: Demand) -> Program:
    """ATP as released (in-ATP/ATP, p4src/): a slot is an aggregator, which takes an entry a pass.

    62 words take two passes of 31: the second finds its half in other entries of the same registers.
    """
    per_pass = min(demand.words_per_pass or ATP_WORDS_PER_PASS, demand.words)
    repeats = -(-demand.words // per_pass)
    entries = repeats * demand.slots
    return Program(
        name="atp",
        title="ATP",
        demand=demand,
        registers=(
            Register("id", entries, 32),
            Register("bitmap", entries, 32, after=("id",)),
            Register("ecn", entries, 32, after=("id",)),
            Register("counter", entries, 32, after=("bitmap",)),
            Register(VALUES, entries, 32, after=("counter",), count=per_pass),
        ),
        header_bytes=_ATP_BYTES,
        words_per_pass=per_pass,
        repeats=repeats,
        reply_passes=repeats,
        overflow="sticky",  # that the server sees where a sum left int32
        resubmits=True,
    )


def inca(demand: Demand) -> Program:
    """INCA (SophiaLi06/CS243-INCA, a forerunner of THC): 64 words a pass, one in every entry of 64 bits.

    From its published behaviour; that the headers are as long as SwitchML's over UDP is assumed.
    """
    per_pass = min(demand.words_per_pass or INCA_WORDS_PER_PASS, demand.words)
    return Program(
        name="inca",
        title="INCA",
        demand=demand,
        registers=(
            Register("round", demand.slots, 32),
            Register("counter", demand.slots, 32, after=("round",)),
            Register(VALUES, demand.slots, 64, after=("counter",), count=per_pass),
        ),
        header_bytes=_UDP_BYTES,
        words_per_pass=per_pass,
        repeats=-(-demand.words // per_pass),
    )


def _folded(demand: Demand) -> tuple[int, int]:
    """Words per pass and pipelines in a row, as SwitchML's `next_step_selector.py` has them."""
    if demand.words_per_pass is not None:
        per_pass = min(demand.words_per_pass, demand.words)
        return per_pass, -(-demand.words // per_pass)
    if demand.words == FOLDED_WORDS:
        return FOLDED_WORDS // FOLDED_PIPES, FOLDED_PIPES
    return demand.words, 1


_DECLARATIONS: dict[str, Callable[[Demand], Program]] = {
    "switchml": switchml,
    "tree": tree,
    "timed": timed,
    "atp": atp,
    "inca": inca,
}
PROGRAMS = tuple(_DECLARATIONS)
RELEASED = {  # what `netfold switch fit` takes unless told otherwise
    "switchml": Demand(workers=8, slots=8192, words=64),
    "tree": Demand(workers=8, slots=16, words=512),
    "timed": Demand(workers=8, slots=512, words=64),
    "atp": Demand(workers=8, slots=20_000, words=62),
    "inca": Demand(workers=8, slots=20_479, words=64),
}
MERGES = {  # of programs that cannot do all that a switch can
    "timed": frozenset({Merge.ADD, Merge.FLOAT_ADD}),
    "atp": frozenset({Merge.ADD}),
}
WORDS = {  # of a packet, as programs are known to have them
    "switchml": (64, 256),
    "tree": (64, 256, 512),
    "timed": (64, 256),
    "atp": (62,),
    "inca": (64, 256),
}


def declare(name: str, demand: Demand, *, in_one_pass: bool = False) -> Program:
    """Declaration of a program for what it is to do.

    `in_one_pass` is for switches without stages: whatever `demand` says of words a pass, all words of a
    packet are added at once, so nothing is folded and nothing repeats.

    Raises
    ------
    UnknownProgramError
        Names the nearest program and all there are.
    """
    if name not in _DECLARATIONS:
        raise UnknownProgramError(f"there is no program {name!r}; {names_hint(name, PROGRAMS)}")
    asked = replace(demand, words_per_pass=demand.words) if in_one_pass else demand
    declared = replace(_DECLARATIONS[name](asked), demand=demand)
    return declared if demand.header_bytes is None else replace(declared, header_bytes=demand.header_bytes)

"""Which codecs a state can drive, and with what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from netfold.errors import DataError
from netfold.homomorphic.codec import Carrier, Codec
from netfold.homomorphic.contract import refusal_of
from netfold.homomorphic.message import Merge
from netfold.homomorphic.round import StepFact
from netfold.sim.api.given import sets_of
from netfold.sim.studies.codec_study_gradients import read_codec
from netfold.sim.workload.workload import refusal_of_needs

WITH_RATE = frozenset({StepFact.LEARNING_RATE})  # what is known of a step if the user gives the rate
_TRAVELS = {
    Merge.ADD: "all-reduce",
    Merge.OR: "all-reduce, on NCCL shares",
    Merge.MAX: "all-reduce",
    Merge.FLOAT_ADD: "shares, by rank",
    Merge.SIGN: "gathered, by rank",
    Merge.TABLE_ADD: "shares",
    Merge.GATHER: "gathered",
    Merge.HOST: "gathered, by rank",
}


class Support(NamedTuple):
    """What a hook can do with a codec."""

    works: str  # "yes", "with learning_rate" or "no"
    why: str  # what it lacks; empty if it works
    travels: str  # how its messages do


def make_codec(codec: Codec | str, options: Mapping[str, Any]) -> Codec:
    """A codec from its kind and options, as a scenario gives them.

    What defaults to the network's values has those of packets of 256 elements, as in a scenario.

    Raises
    ------
    ScenarioError
        The kind, an option or a value is unknown: the text of a scenario file.
    """
    if isinstance(codec, Codec):
        if options:
            given = ", ".join(options)
            raise DataError(
                f"{given}: the codec is given with its options", f"leave out {given}, or give a kind"
            )
        return codec.carried_by(Carrier())
    text = ",".join(sets_of(options))
    joint = "," if ":" in codec else ":"
    return read_codec(f"{codec}{joint}{text}" if text else codec).codec.carried_by(Carrier())


def check_codec(codec: Codec, workers: int, has_rate: bool) -> None:
    """Refuse a codec that needs what a hook does not know, or has no room for the workers.

    Raises
    ------
    DataError
        What it needs or lacks, and what would help.
    """
    known = WITH_RATE if has_rate else frozenset()
    if refusal := refusal_of_needs(codec, known, "a communication hook"):
        hint = "use another codec, or a simulated run: a scenario whose workload has the kind training"
        if codec.needs == WITH_RATE:
            hint = "give State a learning_rate, and train with torch.optim.SGD(…, lr=1.0)"
        raise DataError(refusal.message, hint)
    if refused := refusal_of(codec, workers):
        raise DataError(refused.reason, f"use {refused.remedy}")


def support_of(codec: Codec) -> Support:
    """What a hook can do with a codec."""
    travels = "; ".join(sorted(f"{one.value}: {_travels(one, codec)}" for one in codec.merges))
    refusal = refusal_of_needs(codec, frozenset(), "a communication hook")
    if refusal is None:
        return Support("yes", "", travels)
    return Support("with learning_rate" if codec.needs == WITH_RATE else "no", refusal.message, travels)


def _travels(merge: Merge, codec: Codec) -> str:
    """How a codec's messages of a merge do: no backend adds 16-bit integers."""
    return _TRAVELS[Merge.TABLE_ADD if merge is Merge.ADD and codec.lane_bits == 16 else merge]

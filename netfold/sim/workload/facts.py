"""Facts of a step that a codec needs and a source of gradients may not know."""

from __future__ import annotations

from typing import NamedTuple

from netfold.homomorphic.codec import Codec
from netfold.homomorphic.round import StepFact


class Refusal(NamedTuple):
    """Why a codec cannot be used, and what to do."""

    message: str
    hint: str


def refusal_of_needs(codec: Codec, known: frozenset[StepFact], where: str) -> Refusal | None:
    """The refusal of a codec that needs more than is known, or None.

    Parameters
    ----------
    codec
        Its `needs` are compared.
    known
        The facts of a step that are known.
    where
        What does not know the others, as a sentence's subject: "a study".
    """
    missing = [fact.value for fact in StepFact if fact in codec.needs - known]
    if not missing:
        return None
    listed = ", ".join(missing[:-1]) + (" and " if len(missing) > 1 else "") + missing[-1]
    return Refusal(
        f"{codec.kind} needs {listed}, {where} does not know {'it' if len(missing) == 1 else 'them'}",
        "use a scenario whose workload has the kind training, or another codec",
    )

"""What a plan allows but a person should know of."""

from __future__ import annotations

from homomorphic.codec import Codec
from homomorphic.lossless import Lossless
from sim.engine.model import Job, Overflow
from sim.plan import RingPlan


def warnings_of(codec: Codec, collective: RingPlan | Job) -> tuple[str, ...]:
    """One sentence each; they are printed and kept with the results."""
    if isinstance(collective, RingPlan) or collective.overflow is Overflow.WRAP:
        return ()
    if isinstance(codec, Lossless):
        policy = collective.overflow.name.lower()
        return (
            f"codec lossless with overflow {policy}: saturation is not invertible, so peeling can fail "
            "where a counter overflows",
        )
    return ()

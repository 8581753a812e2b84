"""Fits a codec to the network and the number of workers."""

from __future__ import annotations

from netfold.homomorphic.carrier import Carrier
from netfold.homomorphic.codec import Codec
from netfold.sim.keys.location import Location


def fitted(codec: Codec, carrier: Carrier) -> Codec:
    """The codec, adapted to the network."""
    return codec.carried_by(carrier)


def check_workers(location: Location, codec: Codec, workers: int, overflow: str) -> None:
    """Refuse more workers than a codec's sums have room for; `overflow` is the policy for int32 sums.

    Raises
    ------
    ScenarioError
        There are too many.
    """
    if (refusal := codec.refusal(workers, overflow)) is None:
        return
    hint = f"use codec.{refusal.remedy}"
    if codec.refusal(workers, "wrap") is None:
        hint += ", or collective.overflow: wrap"
    raise location.job_error(f"codec.{refusal.option}", refusal.reason, hint)

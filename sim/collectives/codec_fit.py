"""Fits a codec to the network and the number of workers."""

from __future__ import annotations

from netfold.homomorphic.carrier import Carrier
from netfold.homomorphic.codec import Codec
from netfold.homomorphic.message import LANE_BITS
from netfold.sim.keys.location import Location


def fitted(codec: Codec, carrier: Carrier) -> Codec:
    """The codec, adapted to the network."""
    return codec.carried_by(carrier)


def check_workers(
    location: Location, codec: Codec, workers: int, overflow: str, *, may_wrap: bool = True
) -> None:
    """Refuse more workers than a codec's sums have room for, and adders that it cannot use.

    `overflow` is the policy for sums; `may_wrap` says whether the scenario could choose that they wrap.

    Raises
    ------
    ScenarioError
        There are too many, the adders do not wrap, or no sums have lanes of the codec's width.
    """
    if codec.lane_bits not in LANE_BITS:
        widths = f"{', '.join(map(str, LANE_BITS[:-1]))} or {LANE_BITS[-1]}"
        found = f"codec {codec.kind!r} has sums in lanes of {codec.lane_bits} bits"
        raise location.job_error("codec", found, f"use lanes of {widths} bits")
    if (refusal := codec.refusal(workers, overflow)) is None:
        return
    key, hint = "codec", f"use {refusal.remedy}"
    if refusal.option:
        key, hint = f"codec.{refusal.option}", f"use codec.{refusal.remedy}"
    if may_wrap and codec.refusal(workers, "wrap") is None:
        hint += ", or collective.overflow: wrap"
    raise location.job_error(key, refusal.reason, hint)

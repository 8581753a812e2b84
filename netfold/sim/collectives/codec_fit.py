"""Fits a codec to the network and the number of workers."""

from __future__ import annotations

from netfold.homomorphic.codec import Carrier, Codec
from netfold.homomorphic.contract import refusal_of
from netfold.sim.keys.location import Location
from netfold.switch.program import names_of


def fitted(codec: Codec, carrier: Carrier) -> Codec:
    """The codec, adapted to the network."""
    return codec.carried_by(carrier)


def check_absence(location: Location, codec: Codec, carrier: str, carries_absence: bool) -> None:
    """Refuse a codec whose workers may be absent from merges where `carrier` cannot count them.

    Raises
    ------
    ScenarioError
        It cannot.
    """
    if not codec.may_be_absent or carries_absence:
        return
    from netfold.sim.collectives.registry import COLLECTIVES  # late: it lists what calls this

    able = names_of(lambda program: program.carries_absence)
    kinds = [kind for kind, spec in COLLECTIVES.items() if spec.carries_absence]
    raise location.job_error(
        "codec",
        f"workers of codec {codec.kind!r} may have nothing to contribute to a merge, and {carrier} cannot "
        "carry the header that says so",
        f"use one of the collectives {', '.join(kinds)}; of the switch programs, {', '.join(able)} can",
    )


def check_workers(
    location: Location, codec: Codec, workers: int, overflow: str, *, may_wrap: bool = True
) -> None:
    """Refuse more workers than a codec's sums have room for, options and adders that it cannot use.

    `overflow` is the policy for sums; `may_wrap` says whether the scenario could choose that they wrap.

    Raises
    ------
    ScenarioError
        There are too many, an option is too large, the adders do not wrap, or no sums have lanes of the
        codec's width.
    """
    if (refusal := refusal_of(codec, workers, overflow)) is None:
        return
    key, hint = "codec", f"use {refusal.remedy}"
    if refusal.option:
        key, hint = f"codec.{refusal.option}", f"use codec.{refusal.remedy}"
    if may_wrap and refusal_of(codec, workers) is None:
        hint += ", or collective.overflow: wrap"
    raise location.job_error(key, refusal.reason, hint)

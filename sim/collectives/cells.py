"""Whether the cells of the published index can count so many workers."""

from __future__ import annotations

from netfold.homomorphic.codec import Codec
from netfold.homomorphic.codecs.lossless import Lossless
from netfold.homomorphic.sketch.released import WORKERS_MAX
from netfold.sim.keys.place import Place

_INT32_WORKERS_MAX = 7  # eight times the highest cell of a word, 8 · 2^28, is beyond int32


def check_cells(place: Place, codec: Codec, workers: int, overflow: str) -> None:
    """Refuse cells of 4 bits that overflow; `overflow` is what becomes of sums that leave int32.

    A word is eight cells, counted by ADD. Where sums wrap, the highest cell may well use the sign.

    Raises
    ------
    ScenarioError
        More workers than the cells can count on that adder.
    """
    if not isinstance(codec, Lossless) or codec.setting != "published" or codec.index_bits == 1:
        return
    if workers > WORKERS_MAX:
        message = f"{workers} workers overflow the index's cells of 4 bits, which count to {WORKERS_MAX}"
        hint = f"use codec.index_bits: 1, or {WORKERS_MAX} workers at most"
    elif overflow != "wrap" and workers > _INT32_WORKERS_MAX:
        message = (
            f"{workers} workers in the index's cells of 4 bits leave int32, and with overflow {overflow} "
            f"the index would be wrong; up to {_INT32_WORKERS_MAX} fit"
        )
        hint = "use codec.index_bits: 1, or collective.overflow: wrap"
    else:
        return
    raise place.job_error("codec.index_bits", message, hint)

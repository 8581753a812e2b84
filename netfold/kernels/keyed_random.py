"""Counter-based random numbers: each is a hash of its key, not the next of a sequence.

`mix(seed, stream, job, worker, chunk, …)` returns the same 64 bits at every call, so results do not depend
on the order of events. Compiled code calls `splitmix64` and `mix`. Python calls their twins
`splitmix64_plain` and `mix_plain`, which return the same bits and take integers of any size.

The mixer is SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
"""

from __future__ import annotations

import numpy as np

from netfold.kernels.compiled import kernel, literal_unroll

Integer = int | np.integer

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_MULTIPLY_1 = 0xBF58476D1CE4E5B9
_MULTIPLY_2 = 0x94D049BB133111EB


@kernel
def splitmix64(x: Integer) -> np.uint64:
    """64 well-mixed bits of a 64-bit integer (a bijection; negative values count modulo 2**64)."""
    z = np.uint64(x) + np.uint64(_STEP)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_MULTIPLY_1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_MULTIPLY_2)
    return z ^ (z >> np.uint64(31))


@kernel
def mix(seed: Integer, *values: Integer) -> np.uint64:
    """64 bits that depend on the seed, on every value (one or more) and on their order."""
    state = splitmix64(seed)
    for value in literal_unroll(values):  # values may be of different integer types
        state = splitmix64(state ^ np.uint64(value))
    return state


def splitmix64_plain(x: int) -> int:
    """Plain-Python twin of `splitmix64`."""
    z = (x + _STEP) & _MASK
    z = ((z ^ (z >> 30)) * _MULTIPLY_1) & _MASK
    z = ((z ^ (z >> 27)) * _MULTIPLY_2) & _MASK
    return z ^ (z >> 31)


def mix_plain(seed: int, *values: int) -> int:
    """Plain-Python twin of `mix`."""
    state = splitmix64_plain(seed)
    for value in values:
        state = splitmix64_plain(state ^ (value & _MASK))
    return state

"""Error texts for values that integers cannot hold."""

from __future__ import annotations

import numpy as np

from netfold.homomorphic.message import Gradient


def not_finite(gradient: Gradient) -> str:
    """Error text for the first element that is NaN or infinite."""
    index = int(np.flatnonzero(~np.isfinite(gradient))[0])
    return (
        f"gradient[{index}] is {gradient[index]}: only finite values can be carried; "
        "lower the learning rate, or skip such steps"
    )

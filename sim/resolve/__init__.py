"""From a scenario to a plan, or to the reason why it cannot be run, with the line it comes from.

`variant.py` resolves what a variant's jobs share, `placement.py` who runs where, `ring.py` rings, and
`aggregation/` which switches add up and what they can take.
"""

from netfold.sim.resolve.variant import resolve

__all__ = ["resolve"]

"""From a scenario to a plan, or to the reason why it cannot be run, with the line it comes from.

`variant.py` resolves what a variant's jobs share, `placement.py` who runs where, `switches.py` what jobs ask
of each switch; `in_network.py`, `aggregation_tree.py` and `ring.py` are about collectives.
"""

from sim.resolve.variant import resolve

__all__ = ["resolve"]

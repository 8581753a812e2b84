"""From a scenario to a plan, or to the reason why it cannot be run, with the line it comes from.

`variant.py` resolves what a variant's jobs share and asks each job's collective for its plan.
"""

from netfold.sim.resolve.variant import resolve

__all__ = ["resolve"]

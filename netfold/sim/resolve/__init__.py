"""Resolves a scenario to a plan, or reports why it cannot run and which line is the cause.

`variant.py` resolves what the jobs of a variant share, and each job's collective makes the job's plan.
"""

from netfold.sim.resolve.variant import resolve

__all__ = ["resolve"]
